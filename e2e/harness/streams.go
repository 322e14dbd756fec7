package harness

import (
	"encoding/base64"
	"encoding/json"
	"fmt"

	"github.com/happyd/happyd/crypto"
	"github.com/happyd/happyd/protocol"
)

// Stream is a session that was opened with the account's secret.
type Stream struct {
	ID     string // on the server
	Native string // the provider's id of the conversation
	Flavor string // provider
	Active bool
	Meta   map[string]any
	Envs   []protocol.Envelope // in the server's order
	Raw    []json.RawMessage   // the same, as they were sealed

	// Replaced counts messages whose local id is not their envelope's: something was put into the place of what the server refused.
	Replaced int
}

// Streams opens everything that the server holds. It fails on what cannot be opened and on gaps in the order.
func (m *Machine) Streams() ([]Stream, error) {
	sealed, err := m.server.Sessions(true)
	if err != nil {
		return nil, fmt.Errorf("reading the server: %w", err)
	}
	secret := m.o.Secret
	if r, ok := m.server.(*Relay); ok {
		secret = r.secret
	}
	_, private, err := crypto.ContentKeys(secret)
	if err != nil {
		return nil, err
	}
	var out []Stream
	for _, s := range sealed {
		one, err := open(private[:], s)
		if err != nil {
			return nil, fmt.Errorf("session %s: %w", s.ID, err)
		}
		out = append(out, one)
	}
	return out, nil
}

func open(private []byte, s Sealed) (Stream, error) {
	out := Stream{ID: s.ID, Active: s.Active}
	wrapped, err := base64.StdEncoding.DecodeString(s.Key)
	if err != nil {
		return out, err
	}
	key, err := crypto.UnwrapKey(private, wrapped)
	if err != nil {
		return out, fmt.Errorf("its key: %w", err)
	}
	sealer, err := crypto.NewDataKeySealer(key, nil)
	if err != nil {
		return out, err
	}
	meta, err := base64.StdEncoding.DecodeString(s.Metadata)
	if err != nil {
		return out, err
	}
	plain, err := sealer.Open(meta)
	if err != nil {
		return out, fmt.Errorf("its metadata: %w", err)
	}
	if err := json.Unmarshal(plain, &out.Meta); err != nil {
		return out, fmt.Errorf("its metadata: %w", err)
	}
	out.Flavor, _ = out.Meta["flavor"].(string)
	for _, k := range []string{"claudeSessionId", "codexThreadId"} {
		if id, ok := out.Meta[k].(string); ok {
			out.Native = id
		}
	}
	for i, msg := range s.Messages {
		if msg.Seq != int64(i+1) {
			return out, fmt.Errorf("message %d has the number %d", i+1, msg.Seq)
		}
		plain, err := sealer.Open(msg.Sealed)
		if err != nil {
			return out, fmt.Errorf("message %d: %w", msg.Seq, err)
		}
		e, err := protocol.Unwrap(plain)
		if err != nil {
			return out, fmt.Errorf("message %d: %w", msg.Seq, err)
		}
		if e.ID != msg.LocalID {
			out.Replaced++
		}
		var w struct {
			Content json.RawMessage `json:"content"`
		}
		if err := json.Unmarshal(plain, &w); err != nil {
			return out, err
		}
		out.Envs, out.Raw = append(out.Envs, e), append(out.Raw, w.Content)
	}
	return out, nil
}

// ByNative sorts streams by the provider's ids. Two sessions for one conversation are an error.
func ByNative(all []Stream) (map[string]Stream, error) {
	out := map[string]Stream{}
	for _, s := range all {
		if s.Native == "" {
			return nil, fmt.Errorf("session %s does not say which conversation it is: %v", s.ID, s.Meta)
		}
		if _, twice := out[s.Native]; twice {
			return nil, fmt.Errorf("conversation %s has two sessions", s.Native)
		}
		out[s.Native] = s
	}
	return out, nil
}
