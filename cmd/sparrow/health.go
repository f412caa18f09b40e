package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

func healthCommand() *cobra.Command {
	var url string
	var timeout time.Duration
	var insecure bool
	c := &cobra.Command{
		Use:   "health",
		Short: "Check whether a server accepts requests",
		Long: `Health requests /ready from a running server. The exit status is 0 if the server accepts requests; otherwise it is 1,
and the reason is printed. Containers without a shell or curl use it as their health check.`,
		Example: `  sparrow health
  sparrow health --url https://127.0.0.1:8443 --insecure
  sparrow health --url unix:/run/sparrow/sparrow.sock`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := context.WithTimeout(cmd.Context(), timeout)
			defer stop()
			if err := checkHealth(ctx, url, insecure); err != nil {
				return err
			}
			_, err := fmt.Fprintln(cmd.OutOrStdout(), "ready")
			return err
		},
	}
	s := c.Flags()
	s.StringVar(&url, "url", "http://127.0.0.1:8080", "server's URL, or unix:/path of its socket")
	s.DurationVar(&timeout, "timeout", 5*time.Second, "maximum time for the answer")
	s.BoolVar(&insecure, "insecure", false, "do not verify the TLS certificate, as for a server addressed by 127.0.0.1")
	return c
}

// checkHealth returns an error unless the server at url reports that it is ready.
func checkHealth(ctx context.Context, url string, insecure bool) error {
	transport := &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: insecure}}
	at := strings.TrimRight(url, "/")
	if path, ok := strings.CutPrefix(url, "unix:"); ok {
		at = "http://localhost"
		transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", path)
		}
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, at+"/ready", nil)
	if err != nil {
		return fmt.Errorf("health: --url %s: want a URL such as http://127.0.0.1:8080, or unix:/path: %w", url, err)
	}
	resp, err := (&http.Client{Transport: transport}).Do(r)
	if err != nil {
		return fmt.Errorf("health: no server responds at --url %s: %w", url, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 500)) // the reason, or a part of it
		return fmt.Errorf("health: %s/ready returned %s: %s", url, resp.Status, text)
	}
	return nil
}
