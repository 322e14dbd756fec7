package socketio

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
)

// Engine.IO packet types, the first byte of a WebSocket text message.
const (
	engineOpen    = '0'
	engineClose   = '1'
	enginePing    = '2'
	enginePong    = '3'
	engineMessage = '4'
	engineUpgrade = '5'
	engineNoop    = '6'
)

// Socket.IO packet types, the byte after engineMessage.
const (
	kindConnect      = '0'
	kindDisconnect   = '1'
	kindEvent        = '2'
	kindAck          = '3'
	kindConnectError = '4'
	kindBinaryEvent  = '5'
	kindBinaryAck    = '6'
)

const (
	rootNamespace = "/"
	noID          = -1
	// maxID is the largest number that a JavaScript peer can count to.
	maxID = 1<<53 - 1
)

// frame is one WebSocket text message: an Engine.IO packet, and for
// engineMessage the Socket.IO packet in it.
type frame struct {
	engine byte
	data   []byte // payload of every engine type but engineMessage
	packet packet
}

// packet is a Socket.IO packet.
type packet struct {
	kind byte
	nsp  string // always starts with "/"
	id   int64  // number of the acknowledgement, or noID
	data []byte // JSON, nil if there is none; raw text for binary kinds
	args []json.RawMessage
}

// reserved are event names that the official parser refuses with the loss of
// the connection.
var reserved = map[string]bool{
	"connect": true, "connect_error": true, "disconnect": true,
	"disconnecting": true, "newListener": true, "removeListener": true,
}

// encode renders f; it is the inverse of decode for every frame decode accepts.
func (f frame) encode() []byte {
	if f.engine != engineMessage {
		return append([]byte{f.engine}, f.data...)
	}
	p := f.packet
	b := make([]byte, 0, len(p.data)+len(p.nsp)+24)
	b = append(b, engineMessage, p.kind)
	if p.kind != kindBinaryEvent && p.kind != kindBinaryAck {
		if p.nsp != rootNamespace && p.nsp != "" {
			b = append(append(b, p.nsp...), ',')
		}
		if p.id != noID {
			b = strconv.AppendInt(b, p.id, 10)
		}
	}
	return append(b, p.data...)
}

// decode parses one WebSocket text message. It keeps references into b.
func decode(b []byte) (frame, error) {
	if len(b) == 0 {
		return frame{}, errors.New("malformed packet: empty")
	}
	f := frame{engine: b[0]}
	switch f.engine {
	case engineMessage:
		p, err := decodePacket(b[1:])
		if err != nil {
			return frame{}, fmt.Errorf("malformed packet: %w", err)
		}
		f.packet = p
	case engineOpen, engineClose, enginePing, enginePong, engineUpgrade, engineNoop:
		f.data = b[1:]
	default:
		return frame{}, fmt.Errorf("malformed packet: unknown engine type %q", b[0])
	}
	return f, nil
}

func decodePacket(b []byte) (packet, error) {
	if len(b) == 0 {
		return packet{}, errors.New("no socket packet type")
	}
	p := packet{kind: b[0], nsp: rootNamespace, id: noID}
	b = b[1:]
	switch p.kind {
	case kindConnect, kindDisconnect, kindEvent, kindAck, kindConnectError:
	case kindBinaryEvent, kindBinaryAck:
		p.data = b
		return p, nil
	default:
		return packet{}, fmt.Errorf("unknown socket packet type %q", p.kind)
	}
	if len(b) > 0 && b[0] == '/' {
		nsp, rest, _ := bytes.Cut(b, []byte{','})
		p.nsp, b = string(nsp), rest
	}
	digits := 0
	for digits < len(b) && b[digits] >= '0' && b[digits] <= '9' {
		digits++
	}
	if digits > 0 {
		id, err := strconv.ParseInt(string(b[:digits]), 10, 64)
		if err != nil || id > maxID {
			return packet{}, errors.New("acknowledgement number out of range")
		}
		p.id, b = id, b[digits:]
	}
	if len(b) > 0 {
		p.data = b
	}
	return p, p.check()
}

// check validates the payload by kind and splits the array of events and acks.
func (p *packet) check() error {
	switch p.kind {
	case kindConnect:
		if p.data != nil && (p.data[0] != '{' || !json.Valid(p.data)) {
			return errors.New("connect payload is no JSON object")
		}
	case kindDisconnect:
		if p.data != nil {
			return errors.New("disconnect carries a payload")
		}
	case kindConnectError:
		if p.data == nil || (p.data[0] != '{' && p.data[0] != '"') || !json.Valid(p.data) {
			return errors.New("connect_error payload is neither an object nor a string")
		}
	case kindEvent, kindAck:
		if p.data == nil || p.data[0] != '[' {
			return errors.New("payload is no JSON array")
		}
		if err := json.Unmarshal(p.data, &p.args); err != nil {
			return fmt.Errorf("payload is no JSON array: %w", err)
		}
		if p.kind == kindAck {
			if p.id == noID {
				return errors.New("acknowledgement without a number")
			}
			return nil
		}
		if len(p.args) == 0 || p.args[0][0] != '"' {
			return errors.New("event without a name")
		}
		if reserved[p.event()] {
			return errors.New("reserved event name")
		}
	}
	return nil
}

// event returns the name of an event packet.
func (p *packet) event() string {
	var name string
	if err := json.Unmarshal(p.args[0], &name); err != nil {
		return "" // check has seen a JSON string here
	}
	return name
}

// eventFrame builds the packet of an event; id is noID for one without an
// acknowledgement.
func eventFrame(id int64, name string, args []any) ([]byte, error) {
	if name == "" || reserved[name] {
		return nil, fmt.Errorf("%q cannot be used as an event name", name)
	}
	data, err := json.Marshal(append([]any{name}, args...))
	if err != nil {
		return nil, fmt.Errorf("encoding event %q: %w", name, err)
	}
	return frame{engine: engineMessage, packet: packet{kind: kindEvent, id: id, data: data}}.encode(), nil
}

// ackFrame builds the packet that acknowledges event number id.
func ackFrame(id int64, args []any) ([]byte, error) {
	if args == nil {
		args = []any{}
	}
	data, err := json.Marshal(args)
	if err != nil {
		return nil, fmt.Errorf("encoding acknowledgement: %w", err)
	}
	return frame{engine: engineMessage, packet: packet{kind: kindAck, id: id, data: data}}.encode(), nil
}

// socketFrame builds a packet of the root namespace without a number.
func socketFrame(kind byte, data []byte) []byte {
	return frame{engine: engineMessage, packet: packet{kind: kind, id: noID, data: data}}.encode()
}
