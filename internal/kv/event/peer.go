package event

import (
	"bytes"
	"encoding/binary"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"sparrow/internal/kv/event/zmtp"
)

// Limits of a connection.
const (
	handshakeTime = 10 * time.Second
	writeTime     = 60 * time.Second // maximum time of sending a message; after it the peer is disconnected
	maxQueued     = 4096             // maximum number of batches queued for a subscriber
	maxQueuedSize = 64 << 20         // maximum bytes of queued batches; a single batch may be larger
	maxFilters    = 64               // maximum number of topics of a subscriber
	maxFrameRead  = 4096             // maximum bytes of a received frame, which holds a topic or a number
)

// peer is a connection of a subscriber, or of a client that requests replays.
type peer struct {
	conn  net.Conn
	queue chan frame
	bytes atomic.Int64 // bytes of the queued batches

	mu      sync.Mutex
	filters [][]byte
}

func newPeer(c net.Conn, queue int) *peer { return &peer{conn: c, queue: make(chan frame, queue)} }

// push queues a batch for a subscriber, or drops it if the queue is full.
func (s *peer) push(p *Publisher, f frame) {
	size := int64(len(f.payload))
	if had := s.bytes.Load(); had > 0 && had+size > maxQueuedSize {
		p.count.dropped.Add(1)
		return
	}
	select {
	case s.queue <- f:
		s.bytes.Add(size)
	default:
		p.count.dropped.Add(1)
	}
}

func (s *peer) wants(topic []byte) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.ContainsFunc(s.filters, func(f []byte) bool { return bytes.HasPrefix(topic, f) })
}

func (s *peer) subscribed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.filters) > 0
}

// open performs the handshake. It returns nil if the peer is refused.
func (p *Publisher) open(s *peer, c zmtp.Config) *zmtp.Conn {
	s.conn.SetDeadline(p.now().Add(handshakeTime))
	z, err := zmtp.Open(s.conn, c)
	if err != nil {
		p.count.refused.Add(1)
		p.log.Info("a peer of the cache events was refused", "remote", s.conn.RemoteAddr(), "error", err)
		return nil
	}
	s.conn.SetDeadline(time.Time{})
	return z
}

// subscriber serves a subscriber: it reads topics, and starts a goroutine that sends batches.
func (p *Publisher) subscriber(s *peer) {
	z := p.open(s, zmtp.Config{Socket: zmtp.PUB, Peers: []zmtp.Socket{zmtp.SUB, zmtp.XSUB}, MaxFrame: maxFrameRead})
	if z == nil {
		return
	}
	done := make(chan struct{})
	defer close(done)
	p.tasks.Go(func() {
		for {
			select {
			case f := <-s.queue:
				s.bytes.Add(-int64(len(f.payload)))
				s.conn.SetWriteDeadline(time.Now().Add(writeTime))
				if z.Write(p.topic, f.number(), f.payload) != nil {
					s.conn.Close() // ends the reading goroutine
					return
				}
			case <-done:
				return
			}
		}
	})
	for {
		m, err := z.Read()
		if err != nil {
			return
		}
		if joined := s.filter(p.topic, m); joined {
			select {
			case p.joined <- s:
			case <-p.stop:
				return
			}
		}
	}
}

// filter applies a message that begins or ends a subscription. joined is true if the peer has now subscribed to the
// topic.
func (s *peer) filter(topic []byte, m [][]byte) (joined bool) {
	if len(m) != 1 || len(m[0]) == 0 || m[0][0] > 1 {
		return false // publishers ignore messages that are not subscriptions
	}
	before := s.wants(topic)
	s.mu.Lock()
	prefix := m[0][1:]
	if m[0][0] == 1 && len(s.filters) < maxFilters {
		s.filters = append(s.filters, prefix)
	} else if m[0][0] == 0 {
		if i := slices.IndexFunc(s.filters, func(f []byte) bool { return bytes.Equal(f, prefix) }); i >= 0 {
			s.filters = slices.Delete(s.filters, i, i+1)
		}
	}
	s.mu.Unlock()
	return !before && s.wants(topic)
}

// number returns the batch's number as 8 big-endian bytes.
func (f frame) number() []byte { return binary.BigEndian.AppendUint64(nil, f.seq) }

// replayAsk requests all batches with number from or higher.
type replayAsk struct {
	from   uint64
	answer chan []frame // capacity 1
}

// endOfReplay is the number -1, which ends a replay.
var endOfReplay = bytes.Repeat([]byte{0xff}, 8)

// replayer serves the replay requests of a peer, one after the other. A request is ("", number). The reply is ("",
// topic, number, batch) for each batch, and an empty batch at the end.
func (p *Publisher) replayer(s *peer) {
	z := p.open(s, zmtp.Config{Socket: zmtp.ROUTER, Peers: []zmtp.Socket{zmtp.DEALER, zmtp.REQ},
		MaxFrame: maxFrameRead})
	if z == nil {
		return
	}
	for {
		m, err := z.Read()
		if err != nil {
			return
		}
		if len(m) != 2 || len(m[0]) != 0 || len(m[1]) != 8 {
			p.count.refused.Add(1)
			continue
		}
		ask := replayAsk{from: binary.BigEndian.Uint64(m[1]), answer: make(chan []frame, 1)}
		select {
		case p.asked <- ask:
		case <-p.stop:
			return
		}
		for _, f := range <-ask.answer {
			s.conn.SetWriteDeadline(time.Now().Add(writeTime))
			if z.Write(nil, p.topic, f.number(), f.payload) != nil {
				return
			}
		}
		if z.Write(nil, p.topic, endOfReplay, nil) != nil {
			return
		}
	}
}
