package resp

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// Address is the address of a store, with credentials, database number and lifetime of values.
type Address struct {
	Host           string // HOST:PORT
	TLS            bool
	User, Password string
	Database       int
	TTL            time.Duration // lifetime of values; 0 means unlimited
}

// defaultPort is the standard port of Redis.
const defaultPort = "6379"

// ParseURL parses redis://[user:password@]host[:port][/database][?ttl=24h], or rediss:// for TLS.
func ParseURL(text string) (Address, error) {
	const want = "want redis://[user:password@]host[:port][/database][?ttl=24h], or rediss:// for TLS"
	u, err := url.Parse(text)
	if err != nil {
		// The error of url.Parse is omitted, because it may contain a password.
		return Address{}, fmt.Errorf("not a URL; %s", want)
	}
	a := Address{TLS: u.Scheme == "rediss"}
	if u.Scheme != "redis" && !a.TLS || u.Hostname() == "" || u.Fragment != "" {
		return a, fmt.Errorf("%q is not supported; %s", u.Redacted(), want)
	}
	port := u.Port()
	if port == "" {
		port = defaultPort
	}
	a.Host = net.JoinHostPort(u.Hostname(), port)
	a.User = u.User.Username()
	a.Password, _ = u.User.Password()
	if db := strings.Trim(u.Path, "/"); db != "" {
		if a.Database, err = strconv.Atoi(db); err != nil || a.Database < 0 {
			return a, fmt.Errorf("the database %q is not a number; %s", db, want)
		}
	}
	for k, v := range u.Query() {
		if k != "ttl" {
			return a, fmt.Errorf("unknown option %q; %s", k, want)
		}
		if a.TTL, err = time.ParseDuration(v[0]); err != nil || a.TTL < time.Second {
			return a, fmt.Errorf("ttl %q: want a second or more, such as 24h", v[0])
		}
	}
	return a, nil
}

// Conn is a connection to a store. Only one goroutine at a time may use it.
type Conn struct {
	*Reader
	net net.Conn
}

// Dial connects, authenticates and selects the database.
func Dial(ctx context.Context, a Address) (*Conn, error) {
	var d net.Dialer
	c, err := d.DialContext(ctx, "tcp", a.Host)
	if err != nil {
		return nil, err
	}
	if a.TLS {
		host, _, _ := net.SplitHostPort(a.Host)
		c = tls.Client(c, &tls.Config{ServerName: host, MinVersion: tls.VersionTLS12})
	}
	conn := &Conn{Reader: NewReader(c), net: c}
	if deadline, ok := ctx.Deadline(); ok {
		if err := c.SetDeadline(deadline); err != nil {
			c.Close()
			return nil, err
		}
	}
	if err := conn.greet(a); err != nil {
		c.Close()
		return nil, err
	}
	return conn, nil
}

// greet sends the commands for authentication and the database.
func (c *Conn) greet(a Address) error {
	var hello [][]string
	switch {
	case a.User != "":
		hello = append(hello, []string{"AUTH", a.User, a.Password})
	case a.Password != "":
		hello = append(hello, []string{"AUTH", a.Password})
	}
	if a.Database != 0 {
		hello = append(hello, []string{"SELECT", strconv.Itoa(a.Database)})
	}
	for _, args := range hello {
		r, err := c.Do(args...)
		if err != nil {
			return err
		}
		if r.Kind != Status {
			return r.Err()
		}
	}
	return nil
}

// Do sends a command and reads its reply.
func (c *Conn) Do(args ...string) (Reply, error) {
	if _, err := c.net.Write(AppendCommand(nil, -1, args...)); err != nil {
		return Reply{}, err
	}
	return c.Reply()
}

// Send writes bytes from AppendCommand, followed by data. After an error the connection cannot be used any more.
func (c *Conn) Send(parts ...[]byte) error {
	b := net.Buffers(parts)
	_, err := b.WriteTo(c.net)
	return err
}

// Deadline sets the time after which reads and writes fail.
func (c *Conn) Deadline(at time.Time) error { return c.net.SetDeadline(at) }

// Interrupt makes current and later reads and writes fail. It is safe for concurrent use.
func (c *Conn) Interrupt() { _ = c.net.SetDeadline(time.Unix(1, 0)) }

// Close closes the connection.
func (c *Conn) Close() error { return c.net.Close() }
