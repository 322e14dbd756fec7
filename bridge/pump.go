package bridge

import (
	"encoding/json"
	"fmt"

	"github.com/happyd/happyd/adapters"
	"github.com/happyd/happyd/buffer"
	"github.com/happyd/happyd/protocol"
	"github.com/happyd/happyd/watch"
)

// A Pump moves one session's records through its buffer and its mapper, each stream in its order and each child behind its
// parent's call. It is owned by one goroutine. Times are Unix milliseconds.
type Pump struct {
	session adapters.Session
	buf     *buffer.Buffer
	places  map[string]adapters.Place // of the paths that held records lie in
	noise   map[string]bool
	out     []protocol.Envelope
	changed bool
	err     error // why held records cannot be read again now
}

// pumpState is what a restart needs.
type pumpState struct {
	Session json.RawMessage           `json:"session"`
	Held    []buffer.Held             `json:"held,omitempty"`
	Places  map[string]adapters.Place `json:"places,omitempty"`
}

// NewPump makes the pump of a session. saved is what Save returned, nil for a new session.
func NewPump(p adapters.Provider, o adapters.SessionOptions, buf *buffer.Buffer, saved []byte) (*Pump, error) {
	pump := &Pump{buf: buf, places: map[string]adapters.Place{}, noise: map[string]bool{}}
	o.Queued = buf.Len
	if saved == nil {
		pump.session = p.New(o)
		buf.Open(adapters.Main)
		return pump, nil
	}
	var st pumpState
	if err := json.Unmarshal(saved, &st); err != nil {
		return nil, fmt.Errorf("decode saved session: %w", err)
	}
	s, err := p.Load(o, st.Session)
	if err != nil {
		return nil, fmt.Errorf("decode saved session: %w", err)
	}
	pump.session = s
	buf.Restore(st.Held)
	buf.Open(adapters.Main)
	for path, place := range st.Places {
		pump.places[path] = place
	}
	return pump, nil
}

// Save returns the state for NewPump.
func (p *Pump) Save() ([]byte, error) {
	s, err := p.session.Save()
	if err != nil {
		return nil, fmt.Errorf("encode session: %w", err)
	}
	st := pumpState{Session: s, Held: p.buf.Save(), Places: map[string]adapters.Place{}}
	for _, h := range st.Held {
		for _, sp := range h.Spans {
			st.Places[sp.Path] = p.places[sp.Path]
		}
	}
	return json.Marshal(st)
}

// Feed takes one newly read record of a file.
func (p *Pump) Feed(place adapters.Place, rec watch.Record, now int64) {
	it, ok := p.session.Parse(place, rec, now)
	if !ok {
		return
	}
	p.session.Arrive(it, now)
	p.apply()
	if p.noise[it.Stream] {
		return
	}
	p.drain(now)
	if p.buf.IsOpen(it.Stream) && p.buf.Len(it.Stream) == 0 && p.session.Admit(it, now) {
		p.session.Map(it, now)
	} else {
		p.places[rec.Path] = place
		p.buf.Push(it.Stream, rec, place.Stream != adapters.Main)
	}
	p.apply()
	p.drain(now)
}

// Observe takes what is not a record.
func (p *Pump) Observe(o adapters.Observation, now int64) {
	p.session.Observe(o, now)
	p.apply()
	p.drain(now)
}

// Tick lets time pass. drained says that all files were read to their ends.
func (p *Pump) Tick(now int64, drained bool) {
	p.drain(now)
	p.session.Tick(now, drained)
	p.apply()
	p.drain(now)
}

// Wake is when the next Tick could matter; 0 = not before the next input.
func (p *Pump) Wake() int64 { return p.session.Wake() }

// Reset says that a log is read again from its start.
func (p *Pump) Reset(path string, place adapters.Place) {
	p.buf.DropFile(path)
	p.session.Reset(place)
}

// Take hands over the envelopes made since the last call, and whether the session's facts changed.
func (p *Pump) Take() ([]protocol.Envelope, bool) {
	out, changed := p.out, p.changed
	p.out, p.changed = nil, false
	return out, changed
}

// Session is the mapper.
func (p *Pump) Session() adapters.Session { return p.session }

// Err says why records that are due cannot be read again, nil when all is well.
func (p *Pump) Err() error { return p.err }

// Orphans counts held records of unregistered subagents, and these subagents.
func (p *Pump) Orphans() (records, streams int) { return p.buf.Orphans() }

// Close gives the buffer's memory back.
func (p *Pump) Close() { p.buf.Close() }

// apply moves the mapper's output into the pump. It reports whether streams were opened.
func (p *Pump) apply() bool {
	o := p.session.Take()
	p.out = append(p.out, o.Envelopes...)
	p.changed = p.changed || o.Changed
	for _, s := range o.Opened {
		p.buf.Open(s)
	}
	for _, s := range o.Noise {
		p.buf.Drop(s)
		p.noise[s] = true
	}
	for _, s := range o.Forgotten {
		p.buf.Drop(s)
	}
	return len(o.Opened) > 0
}

// drain maps held records until every open stream is empty or must wait.
func (p *Pump) drain(now int64) {
	p.err = nil
	for p.step(now) {
	}
}

func (p *Pump) step(now int64) bool {
	for _, stream := range p.buf.Ready() {
		rec, ok, err := p.buf.Front(stream)
		if err != nil {
			p.err = err
			continue
		}
		if !ok {
			continue
		}
		it, ok := p.session.Parse(p.places[rec.Path], rec, now)
		if !ok || it.Stream != stream {
			p.buf.Skip(stream) // lies in the same span, but was never this stream's
			return true
		}
		if !p.session.Admit(it, now) {
			if p.apply() {
				return true // what it waits for may flow now
			}
			continue
		}
		p.buf.Pop(stream)
		p.session.Map(it, now)
		p.apply()
		return true
	}
	return false
}
