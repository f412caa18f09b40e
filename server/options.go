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

// Default values of Options.
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

// NoGrace, as Options.Grace, cancels running requests immediately at shutdown.
const NoGrace = -1

// NoStore, as Options.StoreBytes, disables stored responses.
const NoStore = -1

// Options holds the settings of the server other than those of the model. Zero means the default above.
type Options struct {
	// Version is the version that /version returns.
	Version string
	// Keys holds the bearer keys of the server; nil allows all requests.
	Keys *Keys
	// Limits holds the limits of tenants; nil means none.
	Limits *Limits
	// MaxWait is the maximum estimated queueing time for new requests: above it, /ready returns 503. 0 means no
	// maximum.
	MaxWait time.Duration
	// AdminKeys holds the keys for the endpoints of administrators; nil disables these endpoints. The keys are not
	// valid for other endpoints.
	AdminKeys *Keys
	// Objectives maps names in the header x-llm-d-inference-objective to priorities; other names have priority 0.
	Objectives map[string]int
	// Traces receives spans of requests; nil disables them. Its sampler selects requests. The caller shuts it down.
	Traces trace.TracerProvider
	// Events, if not nil, adds the metrics of a publisher of cache events.
	Events metric.Events
	// AllowOrigins lists the origins, such as https://example.org, whose web pages may call the server; "*" means all,
	// empty means none.
	AllowOrigins []string
	// AllowHosts lists the accepted values of the header Host, without port, in addition to addresses and localhost. It
	// prevents attacks by web pages with DNS rebinding. nil accepts every Host.
	AllowHosts []string
	// Aliases lists further names of the model; * matches any text without a slash, as in gpt-*.
	Aliases []string
	// Strict makes unknown fields, and token limits above the context, an error. Otherwise such fields are ignored and
	// listed in a header, and such limits are reduced.
	Strict bool
	// NoPage disables the web page: / returns a line of text, and /page/ does not exist.
	NoPage bool
	// VLLMNames adds metrics with vLLM's names, which routers read.
	VLLMNames bool

	// Batches stores files and batches; nil disables their endpoints. Serve runs the lines of batches, and stops them
	// at shutdown.
	Batches *batch.Store

	// WeightsRoot is the folder whose subfolders /update_weights_from_disk may load; empty disables that endpoint.
	WeightsRoot string
	// Transfer configures disaggregated serving: one server computes prompts, another continues them.
	Transfer Transfer

	// StoreBytes is the maximum memory of stored responses in bytes; the oldest are dropped. NoStore disables them.
	StoreBytes int64

	// RequestMemory is the maximum memory of all running requests in bytes. Requests wait for memory, at most
	// BodyTimeout.
	RequestMemory int64

	MaxBodyBytes   int64
	MaxHeaderBytes int
	HeaderTimeout  time.Duration // maximum time for receiving the headers of a request
	BodyTimeout    time.Duration // maximum time for receiving headers and body
	IdleTimeout    time.Duration // maximum time between two requests on a connection
	WriteTimeout   time.Duration // maximum time for sending one event or one response
	// RequestTimeout is the maximum time from the arrival of a request to its last token; 0 means no limit.
	RequestTimeout time.Duration
	// KeepAlive is the time after which a stream without events sends a comment, so that proxies do not close the
	// connection during a long prefill.
	KeepAlive time.Duration
	// DrainDelay is the time at shutdown between the first 503 of /ready and the refusal of requests, so that load
	// balancers can react.
	DrainDelay time.Duration
	// Grace is the time for running requests to complete after new requests are refused at shutdown, or NoGrace.
	Grace time.Duration
	// RetryAfter is the minimum value of the header Retry-After.
	RetryAfter time.Duration

	// Log receives a record per request, without the text of prompts and answers. It may be nil.
	Log *slog.Logger
}

// withDefaults replaces zero values by defaults.
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

// Validate returns an error that lists all invalid fields, or nil.
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

// checkOrigin requires an origin as browsers send it, because origins are compared as strings.
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
