package main

import (
	"fmt"
	"io"
	"log/slog"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"sparrow/engine"
	"sparrow/internal/kv/event"
)

// eventFlags configure the events that a server publishes to routers.
type eventFlags struct {
	endpoint, replay, id string
	objectives           []string
}

func (f *eventFlags) add(s *pflag.FlagSet) {
	s.StringVar(&f.endpoint, "kv-events", "", "address at which to publish which prefixes are cached, in vLLM's "+
		"format, such as tcp://*:5557; every client that can connect can read the tokens of prompts")
	s.StringVar(&f.replay, "kv-events-replay", "",
		"address at which subscribers of --kv-events request the events that they missed; default the next port")
	s.StringVar(&f.id, "kv-events-id", "", "name of this server in --kv-events; default the host's")
	s.StringSliceVar(&f.objectives, "objective", nil, "name and priority of an objective, such as interactive=10, "+
		"that requests name in the header x-llm-d-inference-objective; higher comes first inside a tenant")
}

// open opens the ports for events; it returns nil if --kv-events is not set.
func (f *eventFlags) open(log *slog.Logger) (*event.Publisher, error) {
	if f.endpoint == "" {
		if f.replay != "" || f.id != "" {
			return nil, fmt.Errorf("--kv-events-replay and --kv-events-id need --kv-events; add it, or omit " +
				"them")
		}
		return nil, nil
	}
	if f.id == "" {
		name, err := os.Hostname()
		if err != nil {
			return nil, fmt.Errorf("the name of this host is unknown: %w; give a name with --kv-events-id", err)
		}
		f.id = name
	}
	if strings.Contains(f.id, "@") {
		return nil, fmt.Errorf("--kv-events-id %q: want a name without @, which separates the parts of a topic", f.id)
	}
	p, err := event.New(event.Config{Endpoint: f.endpoint, Replay: f.replay, Salt: engine.CacheSalt, Log: log})
	if err != nil {
		return nil, fmt.Errorf("--kv-events: %w", err)
	}
	f.endpoint, f.replay = p.Addr().String(), p.ReplayAddr().String()
	return p, nil
}

// announce prints the addresses of the events.
func (f *eventFlags) announce(w io.Writer) {
	if f.endpoint != "" {
		fmt.Fprintf(w, "events   cached prefixes at tcp://%s, replays at tcp://%s\n", f.endpoint, f.replay)
	}
}

// priorities parses --objective.
func (f *eventFlags) priorities() (map[string]int, error) {
	all := map[string]int{}
	for _, o := range f.objectives {
		name, text, _ := strings.Cut(o, "=")
		n, err := strconv.Atoi(text)
		if _, twice := all[name]; err != nil || name == "" || twice {
			return nil, fmt.Errorf("--objective %q: want NAME=PRIORITY with a whole number, each name once", o)
		}
		all[name] = n
	}
	return all, nil
}
