package event

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"sparrow/internal/kv/prefix"
)

// ErrEndpoint is wrapped by errors about the addresses in Config.
var ErrEndpoint = errors.New("kv/event: endpoint")

// Config holds the addresses at which events are published.
type Config struct {
	// Endpoint is the address to which subscribers connect, such as tcp://*:5557.
	Endpoint string
	// Replay is the address where subscribers request missed batches; empty means the host of Endpoint and the next
	// port.
	Replay string
	// Salt returns the form in which a page's salt is published; nil publishes salts unchanged.
	Salt func([]byte) string
	// Log receives a record for each refused peer; nil discards them.
	Log *slog.Logger
}

// Stats holds the counters of a Publisher, which never decrease, and the number of subscribers.
type Stats struct {
	Subscribers int
	Sequence    uint64 // number of the latest batch
	Batches     int64  // number of batches that were formed
	Dropped     int64  // number of batches that did not fit in a subscriber's queue
	Replays     int64  // number of replays answered from the kept batches
	// Snapshots counts how often the whole state was sent: to new subscribers, and for replays of batches that are no
	// longer kept.
	Snapshots int64
	Refused   int64 // number of connections refused because of their protocol or because of maxPeers
}

// Publisher publishes the changes of one cache.
type Publisher struct {
	log    *slog.Logger
	queue  *queue
	events net.Listener
	replay net.Listener

	mu     sync.Mutex
	peers  map[*peer]bool // all connections: subscribers, and clients that request replays
	closed bool

	joined chan *peer        // new subscribers, which need the whole state
	asked  chan replayAsk    // replay requests
	stop   chan struct{}     // closed by Close
	tasks  sync.WaitGroup    // all goroutines
	topic  []byte            // set by Run before any goroutine starts
	now    func() time.Time  // replaced in tests
	length int               // maximum number of batches in a subscriber's queue
	count  publisherCounters // atomic counters
}

type publisherCounters struct {
	sequence                                      atomic.Uint64
	batches, dropped, replays, snapshots, refused atomic.Int64
}

// New opens the ports and starts collecting changes, which are sent after Run is called.
func New(c Config) (*Publisher, error) {
	host, port, err := parse(c.Endpoint)
	if err != nil {
		return nil, err
	}
	again, next := host, port+1
	if port == 0 {
		next = 0 // the operating system chooses both ports
	}
	if c.Replay != "" {
		if again, next, err = parse(c.Replay); err != nil {
			return nil, err
		}
	}
	p := &Publisher{log: c.Log, queue: newQueue(c.Salt), peers: map[*peer]bool{}, joined: make(chan *peer),
		asked: make(chan replayAsk), stop: make(chan struct{}), now: time.Now, length: maxQueued}
	if p.log == nil {
		p.log = slog.New(slog.DiscardHandler)
	}
	if p.events, err = listen(host, port); err != nil {
		return nil, err
	}
	if p.replay, err = listen(again, next); err != nil {
		return nil, errors.Join(err, p.events.Close())
	}
	return p, nil
}

// Addr and ReplayAddr return the addresses on which the publisher listens.
func (p *Publisher) Addr() net.Addr       { return p.events.Addr() }
func (p *Publisher) ReplayAddr() net.Addr { return p.replay.Addr() }

// Listener returns a listener that publishes the changes of one tier. It is safe for concurrent use.
func (p *Publisher) Listener(m Medium) prefix.Listener { return listener{p.queue, m} }

// parse parses tcp://HOST:PORT. The host * means all addresses of the machine.
func parse(endpoint string) (host string, port int, err error) {
	address, ok := strings.CutPrefix(endpoint, "tcp://")
	host, text, bad := net.SplitHostPort(address)
	if port, err = strconv.Atoi(text); !ok || bad != nil || err != nil || port < 0 || port > 65535 || host == "" {
		return "", 0, fmt.Errorf("%w: %q, want tcp://HOST:PORT such as tcp://*:5557", ErrEndpoint, endpoint)
	}
	if host == "*" {
		host = ""
	}
	return host, port, nil
}

func listen(host string, port int) (net.Listener, error) {
	if port > 65535 {
		return nil, fmt.Errorf("%w: there is no port after 65535 for replays; choose another port", ErrEndpoint)
	}
	l, err := net.Listen("tcp", net.JoinHostPort(host, strconv.Itoa(port)))
	if err != nil {
		return nil, fmt.Errorf("%w: %w; choose another port, or end the program that listens there", ErrEndpoint, err)
	}
	return l, nil
}

// Topic returns kv@ID@MODEL, the topic of events; id is the name of the server.
func Topic(id, model string) string { return "kv@" + id + "@" + model }

// Run starts publishing under a topic. It must be called at most once; Close stops it.
func (p *Publisher) Run(topic string) {
	p.topic = []byte(topic)
	p.tasks.Go(func() { p.accept(p.events, p.subscriber) })
	p.tasks.Go(func() { p.accept(p.replay, p.replayer) })
	p.tasks.Go(p.publish)
}

// Close closes the ports and all connections.
func (p *Publisher) Close() error {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return nil
	}
	p.closed = true
	close(p.stop)
	for each := range p.peers {
		each.conn.Close()
	}
	p.mu.Unlock()
	err := errors.Join(p.events.Close(), p.replay.Close())
	p.tasks.Wait()
	return err
}

// Stats returns the current values.
func (p *Publisher) Stats() Stats {
	c := &p.count
	s := Stats{Sequence: c.sequence.Load(), Batches: c.batches.Load(), Dropped: c.dropped.Load(),
		Replays:   c.replays.Load(),
		Snapshots: c.snapshots.Load(), Refused: c.refused.Load()}
	p.mu.Lock()
	defer p.mu.Unlock()
	for each := range p.peers {
		if each.subscribed() {
			s.Subscribers++
		}
	}
	return s
}

// publish forms and sends batches. Only its goroutine uses the state and the history.
func (p *Publisher) publish() {
	known, kept := newState(), history{}
	var out encoder
	var list []change
	// Readers may have pages of an earlier server at this address, so the first event is AllBlocksCleared.
	seq := uint64(p.now().UnixMicro())
	out.cleared()
	p.send(&kept, seq, out.batch(p.now()))
	for {
		select {
		case <-p.stop:
			return
		case <-p.queue.wake:
			list = p.queue.take(list)
			known.apply(list, &out)
			if payload := out.batch(p.now()); payload != nil {
				seq++
				p.send(&kept, seq, payload)
			}
		case to := <-p.joined:
			known.whole(&out)
			p.count.snapshots.Add(1)
			to.push(p, frame{seq: seq, payload: out.batch(p.now())})
		case ask := <-p.asked:
			frames := kept.since(ask.from)
			if ask.from < kept.oldest() {
				known.whole(&out)
				frames = []frame{{seq: seq, payload: out.batch(p.now())}}
				p.count.snapshots.Add(1)
			} else {
				p.count.replays.Add(1)
			}
			ask.answer <- frames
		}
	}
}

// send adds a batch to the history and queues it for every subscriber.
func (p *Publisher) send(kept *history, seq uint64, payload []byte) {
	f := frame{seq, payload}
	kept.add(f)
	p.count.sequence.Store(seq)
	p.count.batches.Add(1)
	p.mu.Lock()
	defer p.mu.Unlock()
	for each := range p.peers {
		if each.wants(p.topic) {
			each.push(p, f)
		}
	}
}

// accept accepts connections and serves them until the listener is closed.
func (p *Publisher) accept(l net.Listener, serve func(*peer)) {
	for {
		c, err := l.Accept()
		if err != nil {
			select {
			case <-p.stop:
				return
			default:
				// For example, too many open files; existing connections continue.
				p.log.Warn("no connection for cache events", "error", err)
				time.Sleep(100 * time.Millisecond)
				continue
			}
		}
		each := newPeer(c, p.length)
		if !p.enter(each) {
			p.count.refused.Add(1)
			c.Close()
			continue
		}
		p.tasks.Go(func() {
			defer p.leave(each)
			serve(each)
		})
	}
}

// maxPeers is the maximum number of connections, including those for replays.
const maxPeers = 256

func (p *Publisher) enter(each *peer) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || len(p.peers) >= maxPeers {
		return false
	}
	p.peers[each] = true
	return true
}

func (p *Publisher) leave(each *peer) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.peers, each)
	each.conn.Close()
}
