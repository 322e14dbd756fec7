package protocol

import "errors"

// ErrNotSession says that a well-formed message is no session-protocol message:
// one that a person typed on the phone, or one of the older formats.
var ErrNotSession = errors.New("not a session-protocol message")

const (
	wrapHead = `{"role":"session","content":`
	wrapTail = `,"meta":{"sentFrom":"happyd"}}`
)

// Wrap validates the envelope and returns the JSON plaintext that is sealed and
// sent. Two calls with the same envelope give the same bytes.
func Wrap(e Envelope) ([]byte, error) {
	if err := e.Validate(); err != nil {
		return nil, err
	}
	b := make([]byte, 0, 384+len(e.Ev.Text)+len(e.Ev.Args))
	b, err := e.append(append(b, wrapHead...))
	if err != nil {
		return nil, err
	}
	return append(b, wrapTail...), nil
}

// Unwrap reads a decrypted message in either form that is in use: the envelope
// as the content of a "session" message, or the older {type:"session", data}
// below "session" or "agent". Anything else that is JSON is ErrNotSession.
func Unwrap(b []byte) (Envelope, error) {
	outer, err := readObject("message", b)
	if err != nil {
		return Envelope{}, err
	}
	role := outer.text("role")
	if outer.err != nil || (role != "session" && role != "agent") {
		return Envelope{}, ErrNotSession
	}
	raw, ok := outer.keys["content"]
	if !ok {
		return Envelope{}, ErrNotSession
	}
	content, err := readObject("content", raw)
	if err != nil {
		return Envelope{}, ErrNotSession
	}
	if content.text("type") == "session" {
		return Decode(content.keys["data"])
	}
	if role == "agent" {
		return Envelope{}, ErrNotSession
	}
	return Decode(raw)
}
