package tokenizer

import "encoding/json"

// config holds the fields of tokenizer_config.json that this package uses.
type config struct {
	AddBOS       bool           `json:"add_bos_token"`
	AddEOS       bool           `json:"add_eos_token"`
	BOS          namedToken     `json:"bos_token"`
	EOS          namedToken     `json:"eos_token"`
	ChatTemplate templateChoice `json:"chat_template"`
}

// parseConfig parses tokenizer_config.json. nil means that there is no such file.
func parseConfig(data []byte) (*config, error) {
	c := new(config)
	if data == nil {
		return c, nil
	}
	return c, decodeJSON("tokenizer_config.json", data, c)
}

// namedToken is a token given as a string, or as an object with the member content.
type namedToken string

func (n *namedToken) UnmarshalJSON(data []byte) error {
	if data[0] == '{' {
		var object struct{ Content string }
		err := json.Unmarshal(data, &object)
		*n = namedToken(object.Content)
		return err
	}
	return json.Unmarshal(data, (*string)(n))
}

// templateChoice is a chat template: the only one, or the default one of several with names.
type templateChoice string

func (t *templateChoice) UnmarshalJSON(data []byte) error {
	if data[0] != '[' {
		return json.Unmarshal(data, (*string)(t))
	}
	var list []struct{ Name, Template string }
	if err := json.Unmarshal(data, &list); err != nil {
		return err
	}
	for _, named := range list {
		if named.Name == "default" {
			*t = templateChoice(named.Template)
		}
	}
	return nil
}
