package tier

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"

	"sparrow/internal/testkit/await"
	"sparrow/internal/testkit/respserver"
)

// Invariants of this file: no page leaves the machine before all weights have been read, and no page computed with
// other weights is used.

// sampled returns the spec of an engine that has read only a sample of its weights.
func sampled() Spec {
	s := paged
	s.Weights, s.Whole, s.Local = Fingerprint{1}, false, Fingerprint{1}
	return s
}

func TestPagesStayOnTheMachineUntilAllWeightsAreKnown(t *testing.T) {
	server := respserver.Start(t)
	s := openStack(t, Options{StoreURL: server.URL(), DiskDir: t.TempDir(), DiskBytes: 1 << 20, HostBytes: 1 << 20,
		Pull: true}, sampled())
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s.Serve(l)
	list := chain(s, 1, 64)
	keys := keysOf(list)
	keep(t, s, list, Stored, Leaving)
	other := openStack(t, Options{Pull: true}, paged)
	pull := func(s *Stack) string {
		woken := make(chan struct{}, 1)
		f := s.FetchFrom(l.Addr().String(), keys[:1], func() {
			select {
			case woken <- struct{}{}:
			default:
			}
		})
		defer f.Close()
		for {
			p, _, ended := f.Next()
			if p != nil {
				p.Drop()
				return "came"
			}
			if ended {
				return f.Why()
			}
			<-woken
		}
	}
	if n := server.Len(); n != 0 {
		t.Errorf("%d pages are in the store, want 0", n)
	}
	if disk := s.tiers[1].Count(); disk.Stored != 64 {
		t.Errorf("%d pages were written to this machine's disk", disk.Stored)
	}
	if why := pull(other); why != "peer: not held" {
		t.Errorf("another engine got a page: %s", why)
	}
	if why := pull(openStack(t, Options{Pull: true}, sampled())); why != "peer: "+notKnown {
		t.Errorf("a page was taken from another engine: %s", why)
	}
	if why := s.Missed(); !strings.HasSuffix(why, "store: "+notKnown) {
		t.Errorf("the store did not return a page because of %s", why)
	}

	s.IdentifyBy(func(context.Context) (Fingerprint, error) { return paged.Weights, nil })
	await.True(t, "the weights are known", s.Identified)
	if why := pull(other); why != "came" {
		t.Errorf("once all weights are known: %s", why)
	}
	more := chain(s, 2, 64)
	keep(t, s, more, Stored)
	if n := server.Len(); n != 64 {
		t.Errorf("%d pages are in the store", n)
	}
	// Weights that are equal in the sampled bytes but differ elsewhere do not share pages.
	edited := paged
	edited.Weights = Fingerprint{5}
	e := openStack(t, Options{StoreURL: server.URL()}, edited)
	if n, why := bring(t, e, keysOf(more), nil); n != 0 || why != "store: not held" {
		t.Errorf("%d pages of other weights were fetched: %s", n, why)
	}
}

func TestWeightsThatCannotBeReadStayUnknown(t *testing.T) {
	s := openStack(t, Options{Pull: true}, sampled())
	s.IdentifyBy(func(context.Context) (Fingerprint, error) { return Fingerprint{}, errors.New("no") })
	s.wait.Wait()
	if s.Identified() {
		t.Error("the weights count as known although reading them failed")
	}
}

// When the digest of all weights becomes known, pages on disk stay valid. After the weight files were edited, they are
// not valid.
func TestPagesOnTheDiskFollowTheFilesOfTheWeights(t *testing.T) {
	o := Options{DiskDir: t.TempDir(), DiskBytes: 1 << 20}
	s, err := Open(o, sampled(), nil, quiet)
	if err != nil {
		t.Fatal(err)
	}
	list := chain(s, 1, 3)
	keys := keysOf(list)
	keep(t, s, list, Stored)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	known := sampled()
	known.Weights, known.Whole = Fingerprint{7}, true
	edited := sampled()
	edited.Weights, edited.Local = Fingerprint{2}, Fingerprint{2}
	for _, c := range []struct {
		name string
		spec Spec
		want int
	}{{"not known yet", sampled(), 3}, {"known", known, 3}, {"edited", edited, 0}} {
		s, err := Open(o, c.spec, nil, quiet)
		if err != nil {
			t.Fatal(err)
		}
		if n, why := bring(t, s, keys, rows(1, paged.Bytes)); n != c.want {
			t.Errorf("%s: %d pages were fetched: %s", c.name, n, why)
		}
		closeStack(t, s)
	}
}
