package main

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"sparrow"
	"sparrow/internal/kv/event"
	"sparrow/internal/unit"
	"sparrow/internal/wire"
	"sparrow/plan"
	"sparrow/plan/explain"
	"sparrow/server"
)

// serveFlags holds the flags of `sparrow serve`.
type serveFlags struct {
	engineFlags
	listenFlags
	transferFlags
	weightsRoot string
	eventFlags
	keys     string
	admins   string
	origins  []string
	aliases  []string
	strict   bool
	vllm     bool
	noPage   bool
	store    string
	logLevel string
	logJSON  bool
	grace    time.Duration
	drain    time.Duration
	timeout  time.Duration

	requestMemory string
	batchFlags
	spanFlags
	tenantLimits string
	maxWait      time.Duration
}

func serveCommand() *cobra.Command { return new(serveFlags).command() }

// command returns the command, whose flags set f.
func (f *serveFlags) command() *cobra.Command {
	c := &cobra.Command{
		Use:   "serve",
		Short: "Serve a model over HTTP, as OpenAI's, Anthropic's and Ollama's APIs",
		Long: `Serve loads a model and answers the chat completions, text completions and responses of OpenAI's API, Anthropic's
messages and Ollama's chats. It supports streaming, tools, JSON schemas and log probabilities. Without --model it runs
the small model inside the binary. At the start it prints its decisions: the plan, the division of memory, and the
address on which it listens. At Ctrl-C or SIGTERM it accepts no more requests and lets running answers finish within
--grace. A second signal ends them at once.`,
		Example: `  sparrow serve
  sparrow serve --model deepseek-ai/DeepSeek-V3.2 --kv fp8 --port 9000
  sparrow serve --model /models/GLM-5 --host 0.0.0.0 --api-keys keys.txt --cors https://example.org --vllm-metrics
  sparrow serve --host 0.0.0.0 --tls-cert chain.pem --tls-key key.pem --allow-host models.example.org
  sparrow serve --listen unix:/run/sparrow/sparrow.sock --socket-mode 0660
  sparrow serve --deterministic --cache-tokens 65536 --context 16384`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.serve(cmd) },
	}
	s := c.Flags()
	s.SortFlags = false
	f.listenFlags.add(s)
	s.StringVar(&f.keys, "api-keys", "",
		"file of bearer keys, one per line, each with an optional tenant name; without it no key is needed")
	s.StringVar(&f.admins, "admin-keys", "",
		"file of keys, one per line, for the endpoints of administrators such as /flush_cache; without it they are "+
			"disabled")
	s.StringVar(&f.tenantLimits, "tenant-limits", "", "limits of the tenants of --api-keys, such as 'team-a "+
		"requests=8 "+
		"tokens=60000 share=0.5; * requests=2', or a file with one tenant per line: concurrent requests, tokens per "+
		"minute, share of the running sequences; * is for every other tenant")
	s.DurationVar(&f.maxWait, "max-wait", 0, "/ready returns 503 while new requests would wait longer than this; 0 "+
		"means never")
	s.StringSliceVar(&f.origins, "cors", nil,
		"origins whose web pages may call the server, such as https://example.org, or '*'")
	s.StringSliceVar(&f.aliases, "alias", nil,
		"further names of the model in requests, such as gpt-4o or 'claude-*', for clients that send fixed model names")
	f.engineFlags.add(s)
	f.addServing(s)
	f.transferFlags.add(s)
	s.StringVar(&f.weightsRoot, "weights-root", "", "folder below which administrators may load other weights of the "+
		"same shape (POST /update_weights_from_disk, with --admin-keys)")
	s.StringVar(&f.requestMemory, "request-memory", "",
		"maximum memory of requests that are read, encoded and answered "+
			"at once, such as 512M; without it a quarter of what is available, up to 1G")
	s.BoolVar(&f.strict, "strict", false,
		"refuse requests with unknown fields or with limits above the context, instead of ignoring or reducing them")
	s.BoolVar(&f.vllm, "vllm-metrics", false, "also publish metrics under vLLM's names, for routers that read those")
	f.eventFlags.add(s)
	s.BoolVar(&f.noPage, "no-page", false, "serve no web page at /")
	s.StringVar(&f.store, "store-bytes", "64M",
		"memory for stored responses of /v1/responses, such as 512M; 0 stores none")
	f.batchFlags.add(s)
	f.spanFlags.add(s)
	s.StringVar(&f.logLevel, "log-level", "info", "minimum level that is logged: debug, info, warn, error")
	s.BoolVar(&f.logJSON, "log-json", false, "log as JSON lines")
	s.DurationVar(&f.grace, "grace", server.DefaultGrace,
		"maximum time that running answers may take at shutdown; 0 ends them at once")
	s.DurationVar(&f.drain, "drain-delay", 0, "time at shutdown during which /ready returns 503 and requests are "+
		"still accepted")
	s.DurationVar(&f.timeout, "request-timeout", 0, "maximum time of one request; 0 means no limit")
	return c
}

func (f *serveFlags) serve(cmd *cobra.Command) error {
	// If the reader of standard error ends, log lines are lost but the server continues.
	signal.Ignore(syscall.SIGPIPE)
	log, level, err := newLog(cmd.ErrOrStderr(), f.logLevel, f.logJSON)
	if err != nil {
		return err
	}
	if err := f.listenFlags.check(cmd.Flags()); err != nil {
		return err
	}
	o, err := f.options(cmd.Flags(), log)
	if err != nil {
		return err
	}
	spans, err := f.spanFlags.open(log)
	if err != nil {
		return err
	}
	if spans != nil {
		o.Traces = spans
		defer func() { _ = closeSpans(spans) }() // spans that are not sent within spanGrace are lost
	}
	if err := o.Validate(); err != nil {
		return err
	}
	if _, err := f.config(); err != nil {
		return err
	}
	// Open the port first: if the port is in use, the error is reported before a large model loads for minutes.
	l, err := f.listenFlags.open(cmd.Context(), log)
	if err != nil {
		return err
	}
	defer l.Close() // after loading, the server has already closed the listener
	events, err := f.eventFlags.open(log)
	if err != nil {
		return err
	}
	if events != nil {
		defer events.Close()
		o.Events, f.engineFlags.events = events, events.Listener(event.GPU)
		f.onHost, f.onDisk = events.Listener(event.CPU), events.Listener(event.Storage)
	}
	asked := level.Level()
	if asked == slog.LevelInfo && !f.logJSON {
		level.Set(slog.LevelWarn) // announce prints the notices about the model below
	}
	defer f.spareProcessor()()
	e, err := f.engineFlags.open(cmd, log)
	level.Set(asked)
	if err != nil {
		return err
	}
	if o.RequestMemory, err = requestMemory(f.requestMemory); err != nil {
		return errors.Join(err, closeNow(e))
	}
	if err := f.transferFlags.serve(cmd.Context(), e, &o.Transfer); err != nil {
		return errors.Join(err, closeNow(e))
	}
	if o.Batches, err = f.batchFlags.open(e.Info(), log); err != nil {
		return errors.Join(err, closeNow(e))
	}
	sum := sumMemory(e.Info(), o.RequestMemory, o.StoreBytes)
	sum.bound()
	s, err := server.New(server.Adapt(e), o)
	if err != nil {
		return errors.Join(err, closeNow(e))
	}
	if err := f.announce(cmd.OutOrStdout(), e.Info(), &sum, l.Addr(), &o); err != nil {
		return errors.Join(err, closeNow(e))
	}
	if events != nil {
		events.Run(event.Topic(f.id, e.Info().Name))
	}
	return errors.Join(s.Serve(cmd.Context(), l), closeNow(e))
}

// options returns the options of the server that the flags select, except those that depend on the open model.
func (f *serveFlags) options(given *pflag.FlagSet, log *slog.Logger) (o server.Options, err error) {
	o = server.Options{Version: version(), AllowOrigins: f.origins, AllowHosts: f.hosts(), Strict: f.strict,
		VLLMNames: f.vllm, NoPage: f.noPage, Grace: f.grace, DrainDelay: f.drain, RequestTimeout: f.timeout,
		MaxWait: f.maxWait, Aliases: f.aliases, Log: log}
	if f.grace == 0 {
		o.Grace = server.NoGrace
	}
	switch o.StoreBytes, err = parseBytes(f.store); {
	case err != nil:
		return o, fmt.Errorf("--store-bytes: %w", err)
	case o.StoreBytes == 0:
		o.StoreBytes = server.NoStore
	}
	if f.keys != "" {
		if o.Keys, err = server.LoadKeys(f.keys); err != nil {
			return o, fmt.Errorf("--api-keys: %w", err)
		}
	}
	if o.WeightsRoot = f.weightsRoot; o.WeightsRoot != "" && f.admins == "" {
		return o, errors.New("--weights-root is for administrators; add --admin-keys, or omit it")
	}
	if o.Transfer, err = f.transferFlags.check(given, &f.tierFlags); err != nil {
		return o, err
	}
	if f.tenantLimits != "" {
		if o.Limits, err = server.LoadLimits(f.tenantLimits); err != nil {
			return o, fmt.Errorf("--tenant-limits: %w", err)
		}
	}
	if f.admins != "" {
		if o.AdminKeys, err = server.LoadKeys(f.admins); err != nil {
			return o, fmt.Errorf("--admin-keys: %w", err)
		}
	}
	if o.Objectives, err = f.priorities(); err != nil {
		return o, err
	}
	return o, errors.Join(f.batchFlags.check(given), f.spanFlags.check(given))
}

// newLog makes the logger for --log-level and --log-json, with its initial level.
func newLog(w io.Writer, text string, asJSON bool) (*slog.Logger, *slog.LevelVar, error) {
	level := &slog.LevelVar{}
	if err := level.UnmarshalText([]byte(text)); err != nil {
		return nil, nil, fmt.Errorf("--log-level %q: want debug, info, warn or error", text)
	}
	o := &slog.HandlerOptions{Level: level}
	if asJSON {
		o.ReplaceAttr = milliseconds
		return slog.New(slog.NewJSONHandler(w, o)), level, nil
	}
	return slog.New(slog.NewTextHandler(w, o)), level, nil
}

// milliseconds adds the unit to the names of durations, because JSON has no type for durations.
func milliseconds(_ []string, a slog.Attr) slog.Attr {
	if a.Value.Kind() != slog.KindDuration {
		return a
	}
	return slog.Float64(a.Key+"_ms", float64(a.Value.Duration().Microseconds())/1000)
}

// announce prints the configuration of the server and an example request.
func (f *serveFlags) announce(w io.Writer, i sparrow.Info, sum *memorySum, at net.Addr, o *server.Options) error {
	var b strings.Builder
	fmt.Fprintf(&b, "model    %s: %s", i.Name, i.Family)
	// Print the source only if it differs from the model's name.
	if source := f.source(); filepath.Clean(source) != i.Name {
		fmt.Fprintf(&b, ", %s", source)
	}
	b.WriteString("\n")
	describe(&b, i, &f.deviceFlags)
	fmt.Fprintf(&b, "process  %v\n", sum)
	format := "format " + i.ChatFormat
	if i.ChatFormat == "" {
		format = "none: the checkpoint has no tokenizer or no known chat format, so only prompts can be completed"
	}
	fmt.Fprintf(&b, "chat     %s\n", format)
	where, curl, err := f.address(&b, at, o.Keys)
	if err != nil {
		return err
	}
	f.eventFlags.announce(&b)
	f.transferFlags.announce(&b, &o.Transfer)
	f.batchFlags.announce(&b, o.Batches)
	if !f.noPage && at.Network() != "unix" {
		fmt.Fprintf(&b, "page     %s/ (open it in a browser)\n", where)
	}
	fmt.Fprintf(&b, "\ntry      %s\n", curlFor(i, curl, where, o.Keys != nil))
	_, err = io.WriteString(w, b.String())
	return err
}

// address prints the address of the server. It returns the URL for a client on this machine, and the arguments of curl
// for this URL.
func (f *serveFlags) address(b *strings.Builder, at net.Addr, keys *server.Keys) (url, curl string, err error) {
	if at.Network() == "unix" {
		fmt.Fprintf(b, "address  unix:%s\n", at)
		return f.scheme() + "://localhost", "curl --unix-socket " + at.String(), nil
	}
	host, port, err := net.SplitHostPort(at.String())
	if err != nil {
		return "", "", fmt.Errorf("address %s: %w", at, err)
	}
	ip := net.ParseIP(host)
	if ip.IsUnspecified() {
		host = "127.0.0.1" // the server listens on all interfaces; a client can open this address
	}
	url = f.scheme() + "://" + net.JoinHostPort(host, port)
	fmt.Fprintf(b, "address  %s (listening on %s)\n", url, at)
	if keys == nil && !ip.IsLoopback() {
		b.WriteString("warning  anyone who can reach this address can use the server; --api-keys FILE requires a key\n")
	}
	return url, "curl", nil
}

// describe writes the plan, the device and its threads, and how memory is divided.
func describe(w io.Writer, i sparrow.Info, d *deviceFlags) {
	c := &i.Config
	keys := fmt.Sprintf("top %d keys of each query", c.Model.K)
	if c.Model.Dense() {
		keys = "every key of each query"
	}
	if n := c.Model.PoolTokens(); n > 0 {
		keys = fmt.Sprintf("top %d pools of %d tokens of each query", c.Model.K, n)
	}
	fmt.Fprintf(w, "plan     %v cache (%v rows, pages of %d tokens), prefill %v, decode %v, %s; %s; kernels %s\n",
		c.KV, c.Layout, c.Page, c.Prefill, c.Decode, denseText(i), keys, i.Kernels)
	fmt.Fprintf(w, "device   %s\n", strings.Join(append([]string{deviceText(i)}, d.arithmetic(i)...), "; "))
	if i.Experts != "" {
		fmt.Fprintf(w, "experts  %s\n", i.Experts)
	}
	if text := d.workersText(i); text != "" {
		fmt.Fprintf(w, "workers  %s\n", text)
	}
	if text := ranksText(&c.Model); text != "" {
		fmt.Fprintf(w, "ranks    %s\n", text)
	}
	fmt.Fprintf(w, "drafts   %s\n", draftText(i))
	for _, n := range i.Notices {
		if n.Level != plan.NoticeInfo { // the line above contains the notices of level info
			fmt.Fprintf(w, "%-8v %s\n", n.Level, explain.Notice(n))
		}
	}
	m := i.Memory
	packed, each := "", ""
	if m.Packed {
		packed = ", packed"
	}
	if n := int64(c.Model.Ranks); n > 1 {
		each = fmt.Sprintf(" (%s on each of %d ranks)", unit.Bytes(m.Cache/n), n)
	}
	fmt.Fprintf(w, "memory   weights %s%s; cache %s%s: %d pages, %d tokens; %s for the largest step",
		unit.Bytes(m.Weights), packed, unit.Bytes(m.Cache), each, i.Pages, i.CacheTokens, unit.Bytes(m.Arena))
	if m.Device > 0 {
		fmt.Fprintf(w, ", %s for operations, of %s", unit.Bytes(m.Scratch), unit.Bytes(m.Device))
	}
	fmt.Fprintln(w)
	for _, t := range i.Tiers {
		fmt.Fprintf(w, "tier     %s\n", t)
	}
	fmt.Fprintf(w, "limits   largest step x context: %d x %d tokens; at most %d sequences at once, %d may wait; "+
		"%s\n", i.StepTokens, i.ContextTokens, i.MaxRunning, i.MaxQueue, stallText(i))
}

// deviceText describes the device and the values that were chosen for it.
func deviceText(i sparrow.Info) string {
	if len(i.Defaults) == 0 {
		return i.Device
	}
	return i.Device + "; its defaults: " + strings.Join(i.Defaults, ", ")
}

// ranksText describes how ranks share attention; it is empty for a single rank.
func ranksText(m *plan.Model) string {
	switch {
	case m.Ranks < 2:
		return ""
	case m.ByRequests():
		return fmt.Sprintf("%d share attention by requests (dp): each rank computes all %d heads of its own "+
			"sequences and holds their pages", m.Ranks, m.Heads)
	}
	padded := ""
	if m.PaddedHeads > 0 {
		padded = fmt.Sprintf(" (%d of them padding; --attention dp pads none)", m.PaddedHeads)
	}
	return fmt.Sprintf("%d share attention by heads (tp): each rank computes %d of %d%s and holds the whole cache",
		m.Ranks, m.Heads, m.Heads*m.Ranks, padded)
}

// noteDevice prints the GPU, the default values that it sets, and the placement of experts.
func noteDevice(w io.Writer, i sparrow.Info) {
	if i.Memory.Device > 0 {
		fmt.Fprintf(w, "device: %s\n", deviceText(i))
	}
	if i.Experts != "" {
		fmt.Fprintf(w, "experts: %s\n", i.Experts)
	}
}

func stallText(i sparrow.Info) string {
	if i.MaxStall == 0 {
		return "prompts may delay streams by a whole step"
	}
	return fmt.Sprintf("prompts delay streams by at most %v if possible", i.MaxStall)
}

func draftText(i sparrow.Info) string {
	switch {
	case i.Drafts == 0:
		return "none: " + i.NoDrafts
	case i.Draft.IsFixed():
		return fmt.Sprintf("%d tokens at a time are drafted by %s and verified "+
			"together", i.Drafts, drafter(&i.Config.Model))
	}
	return fmt.Sprintf("auto: up to %d tokens at a time are drafted by %s and verified together, as long as this "+
		"saves time for a request",
		i.Drafts, drafter(&i.Config.Model))
}

// drafter describes the drafting layers of a model.
func drafter(m *plan.Model) string {
	if m.Block > 0 {
		return fmt.Sprintf("%d stages, in blocks of %d", m.NextN, m.Block)
	}
	return fmt.Sprintf("layer %d", m.Layers)
}

func denseText(i sparrow.Info) string {
	if !i.Config.DenseOK {
		return "dense off: " + strings.Join(i.Config.DenseAgainst, ", ")
	}
	return fmt.Sprintf("dense for the first %d tokens of a prompt", i.Config.T)
}

// curlFor returns an example request for copy and paste.
func curlFor(i sparrow.Info, curl, url string, key bool) string {
	name, err := wire.Marshal(i.Name)
	if err != nil {
		name = []byte(`""`) // encoding a string cannot fail
	}
	path, body := "/v1/chat/completions",
		fmt.Sprintf(`{"model": %s, "messages": [{"role": "user", "content": "%s"}], "max_tokens": 256}`, name,
			exampleQuestion)
	if i.ChatFormat == "" {
		path, body = "/v1/completions", fmt.Sprintf(`{"model": %s, "prompt": [1, 2, 3], "max_tokens": 16}`, name)
	}
	auth := ""
	if key {
		auth = " -H 'Authorization: Bearer KEY'"
	}
	return fmt.Sprintf("%s %s%s%s -H 'Content-Type: application/json' -d '%s'", curl, url, path, auth,
		strings.ReplaceAll(body, "'", `'\''`))
}

// exampleQuestion is a question that the built-in model can answer.
const exampleQuestion = "A garden is 21 meters long and 2 meters wide. How many meters of fence are needed to " +
	"go around it?"
