package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/pflag"
)

// listenFlags configure the address of a server, its names and its certificate.
type listenFlags struct {
	host       string
	port       int
	socket     string // "unix:/path", or empty; check splits HOST:PORT into host and port
	socketMode string
	cert, key  string
	allowHosts []string
}

func (f *listenFlags) add(s *pflag.FlagSet) {
	s.StringVar(&f.host, "host", "127.0.0.1", "address to listen on; 0.0.0.0 for every interface")
	s.IntVar(&f.port, "port", 8080, "port to listen on; 0 takes a free one")
	s.StringVar(&f.socket, "listen", "", "HOST:PORT, or unix:/path of a socket, instead of --host and --port")
	s.StringVar(&f.socketMode, "socket-mode", "0660", "permissions of that socket, in octal")
	s.StringVar(&f.cert, "tls-cert", "", "file with the certificate chain (PEM); a new one is read when it changes")
	s.StringVar(&f.key, "tls-key", "", "file with the certificate's private key (PEM)")
	s.StringSliceVar(&f.allowHosts, "allow-host", nil,
		"host names by which the server may be addressed, in addition to addresses and localhost; '*' for all")
}

// check refuses contradictory flags before anything is opened.
func (f *listenFlags) check(given *pflag.FlagSet) error {
	var errs []error
	path, isUnix := strings.CutPrefix(f.socket, "unix:")
	switch {
	case f.socket != "" && (given.Changed("host") || given.Changed("port")):
		errs = append(errs, errors.New("--listen replaces --host and --port; give one or the other"))
	case isUnix && path == "":
		errs = append(errs, fmt.Errorf("--listen %s: want unix:/path", f.socket))
	case f.socket != "" && !isUnix:
		host, port, err := net.SplitHostPort(f.socket)
		if err == nil {
			f.port, err = strconv.Atoi(port)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("--listen %s: want HOST:PORT such as 127.0.0.1:8080, or unix:/path",
				f.socket))
		}
		f.host, f.socket = host, ""
	}
	if host, port, err := net.SplitHostPort(f.host); err == nil && net.ParseIP(f.host) == nil {
		errs = append(errs, fmt.Errorf("--host %s: want an address or a name without a port; give --host %s --port "+
			"%s, or --listen %s", f.host, host, port, f.host))
	}
	switch {
	case f.port < 0 || f.port > 65535:
		errs = append(errs, fmt.Errorf("--port %d: want 0 to 65535", f.port))
	case !isUnix && given.Changed("socket-mode"):
		errs = append(errs, errors.New("--socket-mode applies to the socket of --listen unix:/path; give --listen, or "+
			"omit it"))
	}
	if _, err := f.mode(); err != nil {
		errs = append(errs, err)
	}
	if (f.cert == "") != (f.key == "") {
		errs = append(errs, errors.New("--tls-cert and --tls-key must be used together; give both"))
	}
	return errors.Join(errs...)
}

func (f *listenFlags) mode() (fs.FileMode, error) {
	m, err := strconv.ParseUint(f.socketMode, 8, 32)
	if err != nil || m > 0o777 {
		return 0, fmt.Errorf("--socket-mode %s: want permissions in octal such as 0660", f.socketMode)
	}
	return fs.FileMode(m), nil
}

// hosts returns server.Options.AllowHosts. For a Unix socket every host name is allowed, because web pages cannot
// connect to it.
func (f *listenFlags) hosts() []string {
	if f.socket != "" && len(f.allowHosts) == 0 {
		return nil
	}
	names := []string{}
	if net.ParseIP(f.host) == nil && f.host != "" {
		names = append(names, f.host)
	}
	for _, name := range f.allowHosts {
		if name == "*" {
			return nil
		}
		names = append(names, name)
	}
	return names
}

// open listens, and reads the certificate if there is one.
func (f *listenFlags) open(ctx context.Context, log *slog.Logger) (net.Listener, error) {
	var c *certificate
	if f.cert != "" {
		c = &certificate{cert: f.cert, key: f.key, log: log}
		if err := c.load(time.Now()); err != nil {
			return nil, fmt.Errorf("--tls-cert, --tls-key: %w", err)
		}
	}
	var l net.Listener
	var err error
	if path, isUnix := strings.CutPrefix(f.socket, "unix:"); isUnix {
		mode, _ := f.mode() // check has already validated it
		l, err = listenUnix(ctx, path, mode)
	} else {
		l, err = listenTCP(ctx, f.host, f.port)
	}
	if err != nil || c == nil {
		return l, err
	}
	return tls.NewListener(l, &tls.Config{GetCertificate: c.get, MinVersion: tls.VersionTLS12,
		NextProtos: []string{"h2", "http/1.1"}}), nil
}

// scheme returns the scheme of the server's URL.
func (f *listenFlags) scheme() string {
	if f.cert != "" {
		return "https"
	}
	return "http"
}

// listenTCP opens the port, or returns an error with advice.
func listenTCP(ctx context.Context, host string, port int) (net.Listener, error) {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", net.JoinHostPort(host, strconv.Itoa(port)))
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, fmt.Errorf("port %d on %s is in use; stop the program that uses it, or choose another with --port "+
			"(--port 0 takes a free one)", port, host)
	case errors.Is(err, syscall.EACCES):
		return nil, fmt.Errorf("port %d on %s needs more rights than this user has; choose one above 1023 with --port",
			port, host)
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return nil, fmt.Errorf("%s is not an address of this machine; give --host 127.0.0.1, 0.0.0.0 or one of the "+
			"machine's addresses", host)
	case err != nil:
		return nil, fmt.Errorf("listen on %s port %d: %w", host, port, err)
	}
	return l, nil
}

// maxSocketPath is the maximum length of a socket path on Linux; other systems allow a little less.
const maxSocketPath = 107

// listenUnix opens a socket in the file system. It removes a socket on which no server listens. If another server
// listens, or if the path is not a socket, it returns an error.
func listenUnix(ctx context.Context, path string, mode fs.FileMode) (net.Listener, error) {
	if len(path) > maxSocketPath {
		return nil, fmt.Errorf("--listen unix:%s: the path has %d bytes, but socket paths have at most %d", path,
			len(path), maxSocketPath)
	}
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, fmt.Errorf("--listen: %w", err)
	case info.Mode().Type() != fs.ModeSocket:
		return nil, fmt.Errorf("--listen unix:%s: the path exists and is not a socket; remove it, or choose another "+
			"path", path)
	default:
		if err := removeStale(ctx, path); err != nil {
			return nil, err
		}
	}
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "unix", path)
	if err != nil {
		return nil, fmt.Errorf("--listen: %w", err)
	}
	if err := os.Chmod(path, mode); err != nil {
		return nil, fmt.Errorf("--listen: %w", errors.Join(err, l.Close()))
	}
	return l, nil
}

// removeStale removes a socket on which no server listens.
func removeStale(ctx context.Context, path string) error {
	conn, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "unix", path)
	if err == nil {
		conn.Close()
		return fmt.Errorf("--listen unix:%s: a server is already listening there; stop it, or choose another path",
			path)
	}
	if !errors.Is(err, syscall.ECONNREFUSED) {
		return fmt.Errorf("--listen: cannot determine whether a server is listening on %s: %w", path, err)
	}
	if err := os.Remove(path); err != nil {
		return fmt.Errorf("--listen: %w", err)
	}
	return nil
}

// certificatePause is the minimum time between two checks of the files of a certificate.
const certificatePause = time.Second

// certificate is a certificate in files, which are read again when they change. If the new files are invalid, the old
// certificate is still used. It is safe for concurrent use.
type certificate struct {
	cert, key string
	log       *slog.Logger

	mu     sync.Mutex
	now    *tls.Certificate
	stamp  string // sizes and times of the files when they were last read, valid or not
	looked time.Time
}

// get implements tls.Config.GetCertificate.
func (c *certificate) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now := time.Now(); now.Sub(c.looked) >= certificatePause {
		c.refresh(now)
	}
	return c.now, nil
}

// load reads the certificate for the first time.
func (c *certificate) load(now time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	pair, err := tls.LoadX509KeyPair(c.cert, c.key)
	if err != nil {
		return err
	}
	c.now, c.stamp, c.looked = &pair, c.stampOf(), now
	return nil
}

// refresh reads the files again if they have changed.
func (c *certificate) refresh(now time.Time) {
	c.looked = now
	stamp := c.stampOf()
	if stamp == c.stamp {
		return
	}
	c.stamp = stamp
	pair, err := tls.LoadX509KeyPair(c.cert, c.key)
	if err != nil {
		c.log.Error("the changed certificate cannot be used; the previous one stays in use", "error", err)
		return
	}
	c.now = &pair
	c.log.Info("the certificate was read again", "file", c.cert, "until", pair.Leaf.NotAfter)
}

// stampOf returns a text that changes when one of the files changes.
func (c *certificate) stampOf() string {
	var b strings.Builder
	for _, path := range []string{c.cert, c.key} {
		info, err := os.Stat(path)
		if err != nil {
			fmt.Fprintf(&b, "%v;", err)
			continue
		}
		fmt.Fprintf(&b, "%d %d;", info.ModTime().UnixNano(), info.Size())
	}
	return b.String()
}
