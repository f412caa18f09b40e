package hub

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// Timeouts and limits of a request.
const (
	dialTimeout   = 20 * time.Second
	headerTimeout = 60 * time.Second
	// stallTimeout is the maximum time without new data; after it the attempt fails.
	stallTimeout = 60 * time.Second
	maxRedirects = 5
)

// tries states how often a failed request is repeated, and when.
type tries struct {
	most    int           // maximum number of consecutive attempts without new data
	first   time.Duration // pause after the first failed attempt; it doubles after each further attempt
	longest time.Duration // maximum pause; if the server requests a longer one, the request fails
	sleep   func(context.Context, time.Duration) error
	notice  func(format string, args ...any) // called before every pause
}

func defaultTries(notice func(string, ...any)) tries {
	return tries{most: 6, first: time.Second, longest: 2 * time.Minute, sleep: sleep, notice: notice}
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}

// again wraps the error of a request that may be repeated. after is the delay that the server requested, or 0.
type again struct {
	err   error
	after time.Duration
}

func (a *again) Error() string { return a.err.Error() }
func (a *again) Unwrap() error { return a.err }

// statusError is an unexpected HTTP status.
type statusError struct {
	status int
	code   string // value of the response header X-Error-Code
	url    string
}

func (e *statusError) Error() string {
	return fmt.Sprintf("%s returned status %d %s", e.url, e.status, http.StatusText(e.status))
}

// unknownHost reports whether DNS returned that the host does not exist.
func unknownHost(err error) bool {
	var dns *net.DNSError
	return errors.As(err, &dns) && dns.IsNotFound
}

// repeat calls attempt until it succeeds, fails permanently, or has failed too often without new data.
func (t tries) repeat(ctx context.Context, attempt func() (progress bool, err error)) error {
	for failed := 0; ; {
		progress, err := attempt()
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		var a *again
		if !errors.As(err, &a) {
			return err
		}
		if failed++; progress {
			failed = 1
		}
		if failed >= t.most {
			return fmt.Errorf("%w (%d attempts failed)", asUnavailable(a.err), failed)
		}
		if a.after > t.longest {
			return fmt.Errorf("%w; the server requests a wait of %v; run the command again after that",
				asUnavailable(a.err), a.after)
		}
		pause := min(t.first<<(failed-1), t.longest)
		pause = max(pause/2+rand.N(pause/2+1), a.after) // random, so that parallel downloads retry at different times
		t.notice("%v; retrying in %v", a.err, pause.Round(100*time.Millisecond))
		if err := t.sleep(ctx, pause); err != nil {
			return err
		}
	}
}

// asUnavailable wraps the last error of a request, which is not repeated any more, in ErrUnavailable.
func asUnavailable(err error) error {
	if errors.Is(err, ErrUnavailable) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrUnavailable, err)
}

// newClient returns the HTTP client for an endpoint. It uses HTTP/1.1, so that parallel downloads have separate
// connections.
func newClient(endpoint *url.URL, jobs int) *http.Client {
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	return &http.Client{
		Transport: &http.Transport{
			Proxy:                 http.ProxyFromEnvironment,
			DialContext:           (&net.Dialer{Timeout: dialTimeout}).DialContext,
			TLSHandshakeTimeout:   dialTimeout,
			ResponseHeaderTimeout: headerTimeout,
			IdleConnTimeout:       headerTimeout,
			MaxIdleConnsPerHost:   jobs,
			DisableCompression:    true, // sizes and ranges are those of the uncompressed file
			Protocols:             &protocols,
		},
		CheckRedirect: func(r *http.Request, via []*http.Request) error {
			r.Header.Del("Referer")
			if !sameOrigin(r.URL, endpoint) {
				r.Header.Del("Authorization") // net/http would also send it to subdomains and other ports
			}
			switch {
			case len(via) > maxRedirects:
				return fmt.Errorf("%w: the request was redirected more than %d times", ErrServer, maxRedirects)
			case r.URL.Scheme != "https" && via[len(via)-1].URL.Scheme == "https":
				return fmt.Errorf("%w: the server redirects from https to %s://%s", ErrServer, r.URL.Scheme, r.URL.Host)
			}
			return nil
		},
	}
}

func sameOrigin(a, b *url.URL) bool { return a.Scheme == b.Scheme && a.Host == b.Host }

// checkEndpoint returns an error for an address that is not a server's, and for http with a token, which would be sent
// unencrypted.
func checkEndpoint(text, token string) (*url.URL, error) {
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" ||
		(u.Scheme != "https" && u.Scheme != "http") {
		return nil, fmt.Errorf("hub: endpoint %.200q: want a URL such as %s", text, DefaultEndpoint)
	}
	ip := net.ParseIP(u.Hostname())
	local := u.Hostname() == "localhost" || ip != nil && ip.IsLoopback()
	if token != "" && u.Scheme == "http" && !local {
		return nil, fmt.Errorf("hub: the access token would be sent unencrypted to %s; use an https endpoint, or "+
			"unset HF_TOKEN", text)
	}
	return u, nil
}

// send sends a GET request. If err is nil, the caller must close the body of the response.
func (p *Puller) send(ctx context.Context, at string, header http.Header) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, at, nil)
	if err != nil {
		return nil, fmt.Errorf("hub: %w", err)
	}
	for name, v := range header {
		r.Header[name] = v
	}
	r.Header.Set("User-Agent", "sparrow/"+p.version)
	if p.token != "" {
		r.Header.Set("Authorization", "Bearer "+p.token)
	}
	resp, err := p.client.Do(r)
	switch {
	case errors.Is(err, ErrServer):
		return nil, err
	case unknownHost(err):
		// Only temporary failures of DNS are repeated.
		return nil, fmt.Errorf("%w: %w; check the network, or set a mirror in HF_ENDPOINT", ErrUnavailable,
			withoutQuery(err))
	case err != nil:
		return nil, &again{err: fmt.Errorf("%w: %w", ErrUnavailable, withoutQuery(err))}
	}
	switch s := resp.StatusCode; {
	case s == http.StatusOK || s == http.StatusPartialContent:
		return resp, nil
	case s == http.StatusRequestTimeout || s == http.StatusTooEarly || s == http.StatusTooManyRequests || s >= 500:
		err = &again{err: failedStatus(resp), after: retryAfter(resp.Header.Get("Retry-After"), time.Now())}
	default:
		err = failedStatus(resp)
	}
	return nil, errors.Join(err, drop(resp))
}

func failedStatus(resp *http.Response) error {
	u := *resp.Request.URL
	u.RawQuery, u.User = "", nil // a redirect's query contains a signature, which must not be printed
	return &statusError{status: resp.StatusCode, code: resp.Header.Get("X-Error-Code"), url: u.String()}
}

// withoutQuery removes the query from the URL of an error, because it may contain a signature.
func withoutQuery(err error) error {
	var u *url.Error
	if !errors.As(err, &u) {
		return err
	}
	at, _, _ := strings.Cut(u.URL, "?")
	return fmt.Errorf("%s: %w", at, u.Err)
}

// drop reads the rest of a short body, so that the connection can be reused.
func drop(resp *http.Response) error {
	_, _ = io.CopyN(io.Discard, resp.Body, 64<<10) // after an error the connection is not reused
	return resp.Body.Close()
}

// retryAfter parses the header Retry-After, seconds or a date; it returns 0 for other text.
func retryAfter(text string, now time.Time) time.Duration {
	if s, err := strconv.ParseInt(text, 10, 32); err == nil {
		return max(0, time.Duration(s)*time.Second)
	}
	if t, err := http.ParseTime(text); err == nil {
		return max(0, t.Sub(now))
	}
	return 0
}

// get returns the whole body of a response of at most most bytes.
func (p *Puller) get(ctx context.Context, at string, most int64) (body []byte, err error) {
	err = p.tries.repeat(ctx, func() (bool, error) {
		watched, watch := p.watch(ctx)
		defer watch.stop()
		resp, err := p.send(watched, at, nil)
		if err != nil {
			return false, err
		}
		defer resp.Body.Close()
		body, err = io.ReadAll(io.LimitReader(&watchedReader{resp.Body, watch}, most+1))
		switch {
		case err != nil:
			return false, &again{err: fmt.Errorf("%w: %w", ErrUnavailable, watch.cause(err))}
		case int64(len(body)) > most:
			return false, fmt.Errorf("%w: %s sent more than %d bytes", ErrServer, at, most)
		case resp.ContentLength >= 0 && int64(len(body)) != resp.ContentLength:
			return false, &again{err: fmt.Errorf("%w: the response of %s ended early", ErrUnavailable, at)}
		}
		return true, nil
	})
	return body, err
}

// watch cancels an attempt that receives no data for too long.
type watch struct {
	timer  *time.Timer
	cancel context.CancelCauseFunc
	ctx    context.Context
	every  time.Duration
}

var errStalled = errors.New("no more data arrived within the time limit")

func (p *Puller) watch(ctx context.Context) (context.Context, *watch) {
	ctx, cancel := context.WithCancelCause(ctx)
	// The timeout for the header is longer than that between two pieces of the body.
	t := time.AfterFunc(headerTimeout+p.stall, func() { cancel(errStalled) })
	return ctx, &watch{timer: t, cancel: cancel, ctx: ctx, every: p.stall}
}

func (w *watch) stop() { w.timer.Stop(); w.cancel(nil) }

// cause returns errStalled if the attempt was cancelled because of a stall, otherwise err.
func (w *watch) cause(err error) error {
	if errors.Is(context.Cause(w.ctx), errStalled) {
		return fmt.Errorf("%w for %v", errStalled, w.every)
	}
	return err
}

// watchedReader restarts the timer whenever data arrives.
type watchedReader struct {
	r io.Reader
	w *watch
}

func (r *watchedReader) Read(b []byte) (int, error) {
	r.w.timer.Reset(r.w.every)
	return r.r.Read(b)
}
