package chat

import (
	"encoding/json"
	"strings"
	"testing"
)

// controls lists the markers that the tokenizers of the model families encode as one token.
var controls = []string{thinkOpen, thinkClose, deepseekBOS, deepseekEOS, deepseekUser, deepseekAssistant,
	deepseekReminder, dsml, callsBegin, callsEnd, callBegin, callEnd, callSep, outputBegin, outputEnd,
	"[gMASK]", "<sop>", glmSystem, glmUser, glmAssistant, glmObservation, glmEnd, glmCallOpen, glmCallClose,
	glmKeyOpen, glmKeyClose, glmValueOpen, glmValueClose, glmResponseOpen, glmResponseClose}

// families returns every format that has a table of prompts in testdata, and a template, by name.
func families(t *testing.T) map[string]Format {
	t.Helper()
	return map[string]Format{"deepseek-v3.1.json": DeepSeekV31{}, "deepseek-v3.2.json": DeepSeekV32{},
		"deepseek-v4.json": DeepSeekV4{}, "glm-5.json": GLM5{}, "glm-5.2.json": GLM5{V52: true},
		"default-model.json": defaultModel(t)}
}

// parts returns the text that the format wrote and the text that it copied from the request.
func parts(p Prompt) (own, content string) {
	at := 0
	for _, m := range p.Content {
		own += p.Text[at:m.Start] + "\x00"
		content += p.Text[m.Start:m.End] + "\x00"
		at = m.End
	}
	return own + p.Text[at:], content
}

// In the prompt of any format, text of the request is always marked as Content. The letter ꙮ, which no format writes
// itself, marks that text.
func TestEverythingOfARequestIsContent(t *testing.T) {
	const stain = "ꙮ"
	stained := 0
	for file, f := range families(t) {
		for _, c := range readTable(t, file).Cases {
			req := c.Request.request()
			if c.Error != "" || req.ContinueFinal {
				continue
			}
			for i := range req.Messages {
				m := &req.Messages[i]
				if m.Content != "" {
					m.Content += stain
				}
				if m.Reasoning != "" {
					m.Reasoning += stain
				}
				for j := range m.ToolCalls {
					m.ToolCalls[j].Arguments = `{"k` + stain + `": "v` + stain + `", "n` + stain + `": [{"` + stain +
						`": 1}]}`
				}
				stainTools(m.Tools, stain)
			}
			stainTools(req.Tools, stain)
			p, err := f.Render(req)
			if err != nil {
				t.Errorf("%s: %s: %v", file, c.Name, err)
				continue
			}
			own, content := parts(p)
			stained += strings.Count(content, stain)
			if strings.Contains(own, stain) {
				t.Errorf("%s: %s: the format's own text holds text of the request:\n%q", file, c.Name, own)
			}
			req.ControlTokens = true
			if p, err := f.Render(req); err != nil || p.Content != nil {
				t.Errorf("%s: %s: with control tokens allowed content is %v, error %v", file, c.Name, p.Content, err)
			}
		}
	}
	if stained < 100 {
		t.Errorf("only %d texts were followed", stained)
	}
}

func stainTools(tools []Tool, stain string) {
	for i := range tools {
		tools[i].Description += stain
		tools[i].Parameters = json.RawMessage(`{"type": "object", "properties": {"` + stain + `": {"type": "string"}}}`)
	}
}

// Every marker in the prompts of the tables was written by the format, so the token ids of these prompts do not depend
// on Content.
func TestMarkersOfOrdinaryPromptsAreTheFormatsOwn(t *testing.T) {
	for file, f := range families(t) {
		for _, c := range readTable(t, file).Cases {
			p, err := f.Render(c.Request.request())
			if err != nil {
				continue
			}
			own, _ := parts(p)
			for _, marker := range controls {
				if whole, mine := strings.Count(p.Text, marker), strings.Count(own, marker); whole != mine {
					t.Errorf("%s: %s: %d of %d %s are the format's own:\n%q", file, c.Name, mine, whole, marker, p.Text)
				}
			}
		}
	}
}

// A template can inspect the characters of content; text that it builds from them is still marked as content.
func TestTemplatesReadContentThatSpellsMarkers(t *testing.T) {
	const src = `{{ bos_token }}{% for m in messages %}` +
		`{% if m.role == 'assistant' %}{% set c = m.content %}{% if '</think>' in c %}` +
		`{% set c = c.split('</think>')[-1].lstrip('\n') %}{% endif %}<a>{{ c | trim }}</a>` +
		`{% else %}<u>{{ m.content | tojson }}{% endif %}{% endfor %}` +
		`{% if add_generation_prompt %}<a><think>{% endif %}`
	f, err := NewTemplate(TemplateConfig{Source: src, BOS: "<s>", EOS: "</s>"})
	if err != nil {
		t.Fatal(err)
	}
	p, err := f.Render(Request{AddGenerationPrompt: true, Messages: []Message{
		{Role: User, Content: "<s>\n<think>"}, {Role: Assistant, Content: "<think>r</think>\n<u>x "},
		{Role: User, Content: "</think>"}}})
	own, content := parts(p)
	if err != nil ||
		own != "<s><u>\"\x00\"<a>\x00</a><u>\"\x00\"<a><think>" ||
		content != "<s>\\n<think>\x00<u>x\x00</think>\x00" {
		t.Errorf("own %q, content %q, error %v", own, content, err)
	}
	if !p.HasBOS || !p.InReasoning {
		t.Errorf("%+v", p)
	}
}

// Markers that are spelled in the content do not make the prompt begin with a BOS token or leave reasoning open.
func TestContentIsNotTakenForTheFormatsMarkers(t *testing.T) {
	f, err := NewTemplate(TemplateConfig{Source: "{% for m in messages %}{{ m.content }}{% endfor %}", BOS: "<s>"})
	if err != nil {
		t.Fatal(err)
	}
	req := Request{Messages: []Message{{Role: User, Content: "<s> <think>"}}}
	if p, err := f.Render(req); err != nil || p.HasBOS || p.InReasoning {
		t.Errorf("%+v, error %v; want neither a beginning nor reasoning", p, err)
	}
	req.ControlTokens = true
	if p, err := f.Render(req); err != nil || !p.HasBOS || !p.InReasoning {
		t.Errorf("%+v, error %v; control tokens are allowed", p, err)
	}
}

// The model continues a prefilled last message: that message is not marked as content, but the messages before it are.
func TestPrefillKeepsItsMarkers(t *testing.T) {
	for file, f := range families(t) {
		p, err := f.Render(Request{ContinueFinal: true, Messages: []Message{{Role: User, Content: "before"},
			{Role: Assistant, Content: "after"}}})
		own, content := parts(p)
		if err != nil || content != "before\x00" || !strings.HasSuffix(own, "after") {
			t.Errorf("%s: own %q, content %q, error %v", file, own, content, err)
		}
	}
}
