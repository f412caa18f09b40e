package server

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"sparrow/internal/wire"
)

// Large requests get memory in order of arrival, and small ones overtake them. At the end all memory is released.
func TestMemoryIsTakenInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory(3200) // requests above 100 bytes are large, and large requests may use 2400 bytes
		take := func(n int64) chan error {
			done := make(chan error, 1)
			go func() { done <- m.take(context.Background(), n, time.Minute) }()
			synctest.Wait()
			return done
		}
		has := func(done chan error) bool {
			select {
			case err := <-done:
				if err != nil {
					t.Errorf("%v", err)
				}
				return true
			default:
				return false
			}
		}
		first, second, third := take(2000), take(1500), take(300)
		if !has(first) || has(second) || has(third) {
			t.Fatal("a large request that fits, and two behind it: the first alone goes on, the others wait in order")
		}
		var small []chan error
		for range 8 {
			small = append(small, take(100))
		}
		for _, s := range small {
			if !has(s) {
				t.Error("a small request waits for large ones")
			}
		}
		m.give(2000, 2000)
		synctest.Wait()
		if !has(second) || !has(third) {
			t.Error("the waiting requests did not go on")
		}
		m.give(1500, 1500)
		m.give(300, 300)
		for range small {
			m.give(100, 100)
		}
		if m.inUse() != 0 || m.large != 0 || len(m.queue) != 0 {
			t.Errorf("%d bytes in use, %d of large requests, %d waiting", m.inUse(), m.large, len(m.queue))
		}
	})
}

// A request that waits too long for memory is refused with 429. A request whose client disconnects reserves no memory.
// A request that can never fit is refused immediately.
func TestMemoryThatDoesNotCome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory(1 << 20)
		ctx, cancel := context.WithCancel(context.Background())
		if err := m.take(ctx, 700<<10, time.Second); err != nil {
			t.Fatal(err)
		}
		var e *wire.Error
		begun := time.Now()
		if err := m.take(ctx, 500<<10, 5*time.Second); !errors.As(err, &e) || e.Code != wire.CodeQueueFull ||
			time.Since(begun) != 5*time.Second {
			t.Errorf("%v after %v", err, time.Since(begun))
		}
		if err := m.take(ctx, 1<<20, time.Hour); !errors.As(err, &e) || e.Code != wire.CodeBodyTooLarge {
			t.Errorf("a request larger than all: %v", err)
		}
		go func() {
			time.Sleep(time.Second)
			cancel()
		}()
		if err := m.take(ctx, 500<<10, time.Hour); !errors.Is(err, context.Canceled) {
			t.Errorf("a client that left: %v", err)
		}
		m.give(700<<10, 700<<10)
		if m.inUse() != 0 || len(m.queue) != 0 {
			t.Errorf("%d bytes in use, %d waiting", m.inUse(), len(m.queue))
		}
	})
}

// Memory for a body is reserved before the body is read, with and without a Content-Length, and is released however the
// request ends.
func TestBodiesAreCounted(t *testing.T) {
	s, _ := start(t, newFake(saying("x")), Options{RequestMemory: 40 << 20, BodyTimeout: time.Second})
	send := func(body string, chunked bool) int {
		r := httptest.NewRequest(http.MethodPost, "/tokenize", strings.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		if chunked {
			r.ContentLength = -1
		}
		w := httptest.NewRecorder()
		s.Handler().ServeHTTP(w, r)
		return w.Code
	}
	small, large := `{"prompt": "a"}`, `{"prompt": "`+strings.Repeat("a ", 1<<20)+`"}`
	for _, chunked := range []bool{false, true} {
		if got := send(small, chunked); got != http.StatusOK {
			t.Errorf("chunked %v: a small body: %d", chunked, got)
		}
		if got := send(large, chunked); got != http.StatusRequestEntityTooLarge {
			t.Errorf("chunked %v: a body of 2 MB with 40 MB for all: %d", chunked, got)
		}
		if got := send("nonsense", chunked); got != http.StatusBadRequest {
			t.Errorf("chunked %v: nonsense: %d", chunked, got)
		}
	}
	if n := s.memory.inUse(); n != 0 {
		t.Errorf("%d bytes are still taken", n)
	}
}

// A client that sends its whole body before it reads the response receives the status of the refusal, with and without
// a Content-Length.
func TestARefusedBodyGetsItsStatus(t *testing.T) {
	_, hs := start(t, newFake(saying("x")), Options{MaxBodyBytes: 1 << 20})
	body := strings.Repeat("x", 32<<20)
	for name, head := range map[string]string{
		"length":  fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(body), body),
		"chunked": fmt.Sprintf("Transfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n", len(body), body),
	} {
		c, err := net.Dial("tcp", strings.TrimPrefix(hs.URL, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		_, err = io.WriteString(c, "POST /tokenize HTTP/1.1\r\nHost: "+strings.TrimPrefix(hs.URL, "http://")+
			"\r\nContent-Type: application/json\r\n"+head)
		if err != nil {
			t.Errorf("%s: the connection broke while the body was sent: %v", name, err)
		} else if resp, err := http.ReadResponse(bufio.NewReader(c), nil); err != nil || resp.StatusCode != 413 {
			t.Errorf("%s: got %+v, %v", name, resp, err)
		}
		c.Close()
	}
}

// After high use, memory is returned to the system once, when use has been low for some time, with or without small
// requests in between.
func TestMemoryIsReturned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory(1 << 30)
		returned := 0
		heap := int64(1 << 20)
		m.release, m.heap = func() { returned++ }, func() int64 { return heap }
		take := func(n int64) {
			t.Helper()
			if err := m.take(t.Context(), n, time.Second); err != nil {
				t.Fatal(err)
			}
		}
		small := func() {
			take(1 << 10)
			m.give(1<<10, 1<<10)
		}
		small()
		time.Sleep(2 * idleAfter)
		synctest.Wait()
		if returned != 0 {
			t.Errorf("returned %d times after a small request", returned)
		}
		take(512 << 20)
		m.give(512<<20, 512<<20)
		for range 9 {
			small()
			time.Sleep(idleAfter / 8)
		}
		synctest.Wait()
		if returned != 1 {
			t.Errorf("returned %d times after a large request and small ones, want once", returned)
		}
		take(512 << 20)
		take(256 << 20)
		m.give(512<<20, 512<<20)
		time.Sleep(2 * idleAfter)
		synctest.Wait()
		if returned != 1 {
			t.Error("returned while much is in use")
		}
		m.give(256<<20, 256<<20)
		time.Sleep(2 * idleAfter)
		synctest.Wait()
		if returned != 2 {
			t.Errorf("returned %d times, want twice", returned)
		}
		// The requests have a few bytes each, and their garbage is not counted here.
		heap = 500 << 20
		for range 2 {
			small()
			time.Sleep(2 * idleAfter)
			synctest.Wait()
		}
		if returned != 3 {
			t.Errorf("returned %d times, want once more after the heap has grown, and not again", returned)
		}
	})
}
