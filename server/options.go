package server

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"path"
	"slices"
	"time"

	"go.opentelemetry.io/otel/trace"

	"sparrow/internal/batch"
	"sparrow/server/internal/metric"
)

// The defaults of Options.
const (
	DefaultRequestMemory  = 1 << 30
	DefaultMaxBodyBytes   = 8 << 20
	DefaultMaxHeaderBytes = 32 << 10
	DefaultHeaderTimeout  = 10 * time.Second
	DefaultBodyTimeout    = 60 * time.Second
	DefaultIdleTimeout    = 120 * time.Second
	DefaultWriteTimeout   = 30 * time.Second
	DefaultKeepAlive      = 15 * time.Second
	DefaultGrace          = 30 * time.Second
	DefaultRetryAfter     = 1 * time.Second
	DefaultStoreBytes     = 64 << 20
)

// NoGrace, as the value of Options.Grace, gives running requests no time to end.
const NoGrace = -1

// NoStore, as the value of Options.StoreBytes, stores no responses.
const NoStore = -1

// Options holds the settings of the server other than those of the model. Zero values mean the defaults above.
type Options struct {
	// Version is the version that /version returns.
	Version string
	// Keys holds the bearer keys of the server; nil allows all requests.
	Keys *Keys
	// Limits limits the use by tenants; it may be nil.
	Limits *Limits
	// MaxWait is the maximum time that new requests should wait: while the estimate is longer, /ready returns 503. 0
	// means no limit.
	MaxWait time.Duration
	// AdminKeys holds the keys of administrators, for the endpoints that change the server; nil disables those. These
	// keys are not valid for other endpoints.
	AdminKeys *Keys
	// Objectives maps names in the header x-llm-d-inference-objective to priorities; other names have priority 0.
	Objectives map[string]int
	// Traces receives spans of requests; nil disables them. Its sampler selects requests; its creator shuts it down.
	Traces trace.TracerProvider
	// Events, if set, is included in the metrics.
	Events metric.Events
	// AllowOrigins lists the origins whose web pages may call the server, such as https://example.org, or "*" for all.
	// Empty means none.
	AllowOrigins []string
	// AllowHosts lists the names that requests may be sent to (their Host, without a port), in addition to addresses
	// and localhost. Others are refused, because a web page could otherwise reach the server under the page's own name
	// (DNS rebinding). nil accepts every name.
	AllowHosts []string
	// Aliases lists further names of the model in requests; * matches any text without a slash, as in gpt-*.
	Aliases []string
	// Strict refuses requests with unknown fields, and token limits above the context. Otherwise such fields are
	// ignored and listed in a header, and such limits are reduced.
	Strict bool
	// NoPage disables the web page: / returns a line of text, and /page/ is unknown.
	NoPage bool
	// VLLMNames adds metrics under vLLM's names, which routers read.
	VLLMNames bool

	// Batches stores files and batches; nil disables their endpoints. Serve runs their lines, in the background, and
	// stops them when it drains.
	Batches *batch.Store

	// WeightsRoot is the folder below which /update_weights_from_disk may read weights; empty disables it.
	WeightsRoot string
	// Transfer is the server's role if one server computes prompts and another continues them.
	Transfer Transfer

	// StoreBytes is the memory for stored responses of /v1/responses; older ones are dropped. NoStore stores none.
	StoreBytes int64

	// RequestMemory limits the memory of requests that are read, encoded and answered at the same time. Requests wait
	// for it, in order, at most BodyTimeout.
	RequestMemory int64

	MaxBodyBytes   int64
	MaxHeaderBytes int
	HeaderTimeout  time.Duration // maximum time for sending the headers of a request
	BodyTimeout    time.Duration // maximum time for sending headers and body
	IdleTimeout    time.Duration // maximum time between two requests of a connection
	WriteTimeout   time.Duration // maximum time for the client to receive one event or one response
	// RequestTimeout is the maximum time of a request from arrival to its last token; 0 means no limit.
	RequestTimeout time.Duration
	// KeepAlive is the maximum time in which a stream sends nothing. After it a comment is sent, so that proxies do not
	// mistake a long prefill for a broken connection.
	KeepAlive time.Duration
	// DrainDelay is the time between the first 503 of /ready and the end of accepting requests, so that load balancers
	// notice in time.
	DrainDelay time.Duration
	// Grace is the time that running requests have to end once no request is accepted any more, or NoGrace.
	Grace time.Duration
	// RetryAfter is the minimum Retry-After of a response that has one.
	RetryAfter time.Duration

	// Log receives a line for each request, without any text of prompts or answers. It may be nil.
	Log *slog.Logger
}

// withDefaults replaces zero values by the defaults.
func (o Options) withDefaults() Options {
	o.RequestMemory = cmp.Or(o.RequestMemory, DefaultRequestMemory)
	o.MaxBodyBytes = cmp.Or(o.MaxBodyBytes, DefaultMaxBodyBytes)
	o.MaxHeaderBytes = cmp.Or(o.MaxHeaderBytes, DefaultMaxHeaderBytes)
	o.HeaderTimeout = cmp.Or(o.HeaderTimeout, DefaultHeaderTimeout)
	o.BodyTimeout = cmp.Or(o.BodyTimeout, DefaultBodyTimeout)
	o.IdleTimeout = cmp.Or(o.IdleTimeout, DefaultIdleTimeout)
	o.WriteTimeout = cmp.Or(o.WriteTimeout, DefaultWriteTimeout)
	o.KeepAlive = cmp.Or(o.KeepAlive, DefaultKeepAlive)
	o.Grace = cmp.Or(o.Grace, DefaultGrace)
	o.RetryAfter = cmp.Or(o.RetryAfter, DefaultRetryAfter)
	o.StoreBytes = cmp.Or(o.StoreBytes, DefaultStoreBytes)
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return o
}

// Validate returns an error that lists all problems.
func (o Options) Validate() error {
	var errs []error
	for _, d := range []struct {
		name string
		v    time.Duration
	}{
		{"HeaderTimeout", o.HeaderTimeout}, {"BodyTimeout", o.BodyTimeout}, {"IdleTimeout", o.IdleTimeout},
		{"WriteTimeout", o.WriteTimeout}, {"RequestTimeout (--request-timeout)", o.RequestTimeout},
		{"KeepAlive", o.KeepAlive}, {"DrainDelay (--drain-delay)", o.DrainDelay}, {"RetryAfter", o.RetryAfter},
		{"MaxWait (--max-wait)", o.MaxWait},
	} {
		if d.v < 0 {
			errs = append(errs, fmt.Errorf("%s is %v, want 0 (the default) or more", d.name, d.v))
		}
	}
	if o.Grace < NoGrace {
		errs = append(errs, fmt.Errorf("--grace (Grace) is %v, want 0 or more", o.Grace))
	}
	if o.MaxBodyBytes < 0 {
		errs = append(errs, fmt.Errorf("MaxBodyBytes is %d, want 0 (the default) or more", o.MaxBodyBytes))
	}
	if o.StoreBytes < NoStore {
		errs = append(errs, fmt.Errorf("StoreBytes is %d, want 0 (the default), a positive number, or NoStore",
			o.StoreBytes))
	}
	if o.MaxHeaderBytes < 0 {
		errs = append(errs, fmt.Errorf("MaxHeaderBytes is %d, want 0 (the default) or more", o.MaxHeaderBytes))
	}
	if o.AdminKeys != nil && o.Keys.shares(o.AdminKeys) {
		errs = append(errs, errors.New("Keys and AdminKeys (--api-keys, --admin-keys) have a key in common; an "+
			"administrator's key opens no other endpoints, so give users other keys"))
	}
	if o.Limits != nil {
		if err := o.Limits.check(o.Keys); err != nil {
			errs = append(errs, err)
		}
	}
	for _, name := range o.AllowHosts {
		if !validHost(name) {
			errs = append(errs, fmt.Errorf("AllowHosts (--allow-host): %q is not a host name; want one such as "+
				"models.example.org, without scheme and port", name))
		}
	}
	for _, name := range o.Aliases {
		if _, err := path.Match(name, ""); err != nil || name == "" {
			errs = append(errs, fmt.Errorf("--alias (Aliases): %q is not a name; want one such as gpt-4o or claude-*",
				name))
		}
	}
	for _, origin := range o.AllowOrigins {
		if err := checkOrigin(origin); err != nil {
			errs = append(errs, err)
		}
	}
	if slices.Contains(o.AllowOrigins, "*") && len(o.AllowOrigins) > 1 {
		errs = append(errs, errors.New(`AllowOrigins (--cors) has \"*\" in addition to others; give one or the other`))
	}
	if len(errs) > 0 {
		return fmt.Errorf("%w: %w", ErrOptions, errors.Join(errs...))
	}
	return nil
}

// checkOrigin requires the form in which browsers send an origin, because origins are compared as strings.
func checkOrigin(origin string) error {
	if origin == "*" {
		return nil
	}
	u, err := url.Parse(origin)
	if err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") || u.Scheme+"://"+u.Host != origin {
		return fmt.Errorf(`AllowOrigins (--cors): %q is not an origin; want scheme and host such as `+
			`https://example.org, or "*"`, origin)
	}
	return nil
}
