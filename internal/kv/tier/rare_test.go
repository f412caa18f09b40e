package tier

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"slices"
	"strings"
	"testing"

	"sparrow/internal/kv/prefix"
)

// Invariants of this file: pages have the bytes of their format, and other machines and listeners get exact answers.

// The checksum of a page is SHA-256 over its header, with zeros in place of the checksum, and its rows. A header that
// is cut off is damaged at every length.
func TestTheChecksumOfAPage(t *testing.T) {
	s := openStack(t, Options{HostBytes: 3000}, spec)
	p := chain(s, 1, 1)[0]
	defer p.Drop()
	head := spec.AppendHeader(nil, p)
	zeroed := slices.Clone(head)
	clear(zeroed[atChecksum:atTokens])
	if want := sha256.Sum256(append(zeroed, p.Data...)); !slices.Equal(head[atChecksum:atTokens], want[:]) {
		t.Errorf("checksum %x, want %x", head[atChecksum:atTokens], want)
	}
	for n := range len(head) {
		if _, err := spec.CheckHeader(head[:n], int64(spec.Size())); !errors.Is(err, ErrDamaged) {
			t.Errorf("the first %d bytes of a header: error %v", n, err)
		}
	}
	if _, err := spec.CheckHeader(head, int64(spec.Size())); err != nil {
		t.Error(err)
	}
}

// Another machine gets the pages of the host memory and whether they are there, and errors for everything else.
func TestAnswersToOtherMachines(t *testing.T) {
	s := openStack(t, Options{HostBytes: 3000}, spec)
	list := chain(s, 1, 2)
	key, other := spec.keyOf(list[0].Hash), spec.keyOf(list[1].Hash)
	page := string(spec.AppendHeader(nil, list[0])) + string(list[0].Data)
	keep(t, s, list[:1], Leaving)
	s.host.Put(list[0]) // a page that is there already is not stored again
	if c := s.Counts()[0]; c.Pages != 1 || c.Stored != 1 {
		t.Errorf("%+v", c)
	}
	list[1].Drop()
	const refused = "-ERR only GET, EXISTS and PING are supported\r\n"
	for _, c := range []struct {
		command, want string
	}{
		{"PING", "+PONG\r\n"}, {"ping", "+PONG\r\n"}, {"PING " + key, "+PONG\r\n"}, {"EXISTS " + key, ":1\r\n"},
		{"exists " + key, ":1\r\n"}, {"EXISTS " + other, ":0\r\n"}, {"EXISTS " + key + " " + key, ":0\r\n"},
		{"EXISTS", ":0\r\n"}, {"EXISTS " + key + "00", ":0\r\n"}, {"EXISTS " + key[:len(key)-2], ":0\r\n"},
		{"EXISTS x" + key, ":0\r\n"}, {"GET " + other, "$-1\r\n"}, {"GET " + key[:len(key)-1] + "x", "$-1\r\n"},
		{"GET " + key, fmt.Sprintf("$%d\r\n%s\r\n", spec.Size(), page)}, {"SET " + key, refused},
		{"DEL " + key, refused},
	} {
		near, far := net.Pipe()
		failed := make(chan error, 1)
		go func() {
			failed <- errors.Join(s.command(near, strings.Split(c.command, " ")), near.Close())
		}()
		got, err := io.ReadAll(far)
		if err = errors.Join(err, <-failed, far.Close()); err != nil || string(got) != c.want {
			t.Errorf("%s: %.80q, error %v", c.command, got, err)
		}
	}
}

// heard records the calls of a listener.
type heard []string

func (h *heard) Stored(prefix.Stored) { *h = append(*h, "stored") }

func (h *heard) Removed(prefix.Hash) { *h = append(*h, "removed") }

func (h *heard) Cleared() { *h = append(*h, "cleared") }

// A listener of the host memory hears of every page, and once when all are gone.
func TestListenersHearThatAPlaceIsCleared(t *testing.T) {
	var got heard
	s, err := Open(Options{HostBytes: 1000, OnHost: &got}, spec, nil, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	list := chain(s, 1, 2)
	keep(t, s, list, Leaving)
	s.Clear()
	if want := []string{"stored", "removed", "stored", "cleared"}; !slices.Equal(got, want) {
		t.Errorf("the listener heard %v, want %v", got, want)
	}
	closeStack(t, s)
}

// A listener of the disk hears of every file that is written and removed, and once when all are gone.
func TestListenersHearOfFiles(t *testing.T) {
	var got heard
	o := Options{DiskDir: t.TempDir(), DiskBytes: int64(2 * spec.Size()), OnDisk: &got}
	s := openStack(t, o, spec)
	keep(t, s, chain(s, 1, 2), Stored)
	s.Clear()
	closeStack(t, s)
	if want := []string{"stored", "stored", "removed", "removed", "cleared"}; !slices.Equal(got, want) {
		t.Errorf("the listener heard %v, want %v", got, want)
	}
}
