package load

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"sparrow/api/openai/client"
)

// Options describe a load. Exactly one of Rate and Concurrency must be set.
type Options struct {
	// URL is the address of the server, such as http://127.0.0.1:8080; it may end with /v1.
	URL string
	// Model is the model's name in requests; if empty, it is the first model that the server lists.
	Model string
	// Key is a bearer key; if it is empty, no key is sent.
	Key string
	// AllowRemote allows a load on another machine.
	AllowRemote bool

	Requests int
	// Rate is the mean number of arrivals per second of a Poisson process: requests are sent even if earlier ones have
	// not been answered.
	Rate float64
	// Concurrency is the number of requests in flight: when a request is answered, the next request is sent.
	Concurrency int
	// Duration is the time after which no more requests are sent; requests in flight are completed. 0 means no limit.
	Duration time.Duration
	// Timeout is the maximum time of one request; 0 means no limit.
	Timeout time.Duration

	// Prompt is the length of a prompt after the shared prefix, Output the length of an answer, in tokens.
	Prompt, Output Lengths
	// Streams is the number of background streams with short prompts that run during the whole load. The report
	// contains the gaps between their tokens, before and during the load.
	Streams int
	// StreamChoices is the number of choices of each background stream; 0 means one. StreamKey is the bearer key of
	// these streams; empty means Key.
	StreamChoices int
	StreamKey     string
	// SharedPrefix is the number of tokens at the beginning of a prompt that all prompts of its group share. Groups is
	// the number of groups, at least 1.
	SharedPrefix, Groups int
	// StopAtEOS ends answers at the end-of-sequence token. Otherwise every answer has its full length, for which the
	// server must support ignore_eos.
	StopAtEOS bool
	// Temperature and TopP select how tokens are sampled; a Temperature of 0 means greedy, and a TopP of 0 is not sent.
	Temperature, TopP float64
	// Turns, if set, is the number of turns of a conversation, which replaces each request. A turn is a chat completion
	// that repeats the earlier messages and answers. Its prompts are words, not token ids, so that their lengths are
	// approximate.
	Turns Lengths
	// Goals holds the latency limits of a good request.
	Goals Goals
	// Seed is the seed of prompts, lengths and arrivals.
	Seed uint64

	// OnDone, if not nil, is called after every answer, by one goroutine at a time.
	OnDone func(done, total int)

	dial func(ctx context.Context, network, address string) (net.Conn, error) // lets tests replace the connection
}

// Validate returns an error that lists all invalid options, or nil.
func (o *Options) Validate() error {
	var errs []error
	add := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if err := o.checkURL(); err != nil {
		errs = append(errs, err)
	}
	if o.Streams < 0 || o.StreamChoices < 0 {
		add("there are %d streams of %d choices during the load, want 0 or more", o.Streams, o.StreamChoices)
	}
	if o.Requests < 1 {
		add("the number of requests is %d, want at least 1", o.Requests)
	}
	switch {
	case o.Rate != 0 && o.Concurrency != 0:
		add("both a rate (%g) and a concurrency (%d) are given; give one", o.Rate, o.Concurrency)
	case o.Rate == 0 && o.Concurrency == 0:
		add("neither a rate nor a concurrency is given; give one")
	case !(o.Rate >= 0) || math.IsInf(o.Rate, 0):
		add("the rate is %g requests per second, want a positive number", o.Rate)
	case o.Concurrency < 0:
		add("the concurrency is %d, want a positive number", o.Concurrency)
	}
	if o.Duration < 0 || o.Timeout < 0 {
		add("the duration is %v and the timeout %v, want 0 (no limit) or more", o.Duration, o.Timeout)
	}
	for _, l := range []struct {
		name string
		v    Lengths
	}{{"prompts", o.Prompt}, {"answers", o.Output}} {
		if l.v.Least < 1 || l.v.Most < l.v.Least {
			add("%s have %v tokens, want at least 1", l.name, l.v)
		}
	}
	if o.Turns != (Lengths{}) && (o.Turns.Least < 1 || o.Turns.Most < o.Turns.Least) {
		add("conversations have %v turns, want at least 1", o.Turns)
	}
	if !(o.Temperature >= 0 && o.Temperature <= 2) || !(o.TopP >= 0 && o.TopP <= 1) {
		add("the temperature is %g and top_p %g, want 0 to 2 and 0 (none) to 1", o.Temperature, o.TopP)
	}
	if o.Goals.FirstToken < 0 || o.Goals.PerToken < 0 || o.Goals.EndToEnd < 0 {
		add("the goals are %v, want times above 0", o.Goals)
	}
	if o.SharedPrefix < 0 || o.Groups < 1 {
		add("the shared prefix has %d tokens in %d groups, want 0 or more tokens and at least one "+
			"group", o.SharedPrefix,
			o.Groups)
	}
	if len(errs) > 0 {
		return fmt.Errorf("load: %w: %w", ErrOptions, errors.Join(errs...))
	}
	return nil
}

func (o *Options) checkURL() error {
	u, err := client.CheckAddress(o.URL)
	if err != nil {
		return fmt.Errorf("url %q: %w", o.URL, err)
	}
	if !o.AllowRemote && !isLoopback(u.Hostname()) {
		return fmt.Errorf("url %s: %w; a load test of another machine needs --allow-remote", o.URL,
			ErrRemote)
	}
	return nil
}

// isLoopback reports whether a host is this machine. Except localhost, names are not resolved and count as remote.
func isLoopback(host string) bool {
	if strings.EqualFold(host, "localhost") {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.Unmap().IsLoopback()
}

// isLoopbackAddress reports whether host:port is an address of this machine.
func isLoopbackAddress(address string) bool {
	host, _, err := net.SplitHostPort(address)
	return err == nil && isLoopback(host)
}

// Lengths is a uniform distribution of lengths in tokens, from Least to Most inclusive.
type Lengths struct{ Least, Most int }

// ParseLengths parses "256", the same length for all, or "uniform:100-400".
func ParseLengths(s string) (Lengths, error) {
	text, uniform := strings.CutPrefix(s, "uniform:")
	low, high, pair := strings.Cut(text, "-")
	if !pair {
		high = low
	}
	a, err1 := strconv.Atoi(low)
	b, err2 := strconv.Atoi(high)
	if err1 != nil || err2 != nil || uniform != pair || a < 1 || b < a {
		return Lengths{}, fmt.Errorf("load: %w: the length is %q, want a number of tokens such as 256, or "+
			"uniform:100-400", ErrOptions, s)
	}
	return Lengths{a, b}, nil
}

// String returns the lengths in the format of ParseLengths.
func (l Lengths) String() string {
	if l.Least == l.Most {
		return strconv.Itoa(l.Least)
	}
	return fmt.Sprintf("uniform:%d-%d", l.Least, l.Most)
}

func (l Lengths) draw(r *rand.Rand) int { return l.Least + r.IntN(l.Most-l.Least+1) }
