package codex

import (
	"encoding/json"

	"github.com/happyd/happyd/adapters"
	"github.com/happyd/happyd/protocol"
)

// usage is the main thread's latest token count: it travels with the next envelope that the agent's output makes, else alone at
// the end of the turn.
type usage struct {
	From string          `json:"from"` // identity of the record
	Raw  json.RawMessage `json:"raw"`
	Sent bool            `json:"sent,omitempty"`
}

// tokenCount takes a token_count's info, which may be null. Codex repeats a count to tell of new rate limits.
func (s *session) tokenCount(info []byte) {
	if s.stream != adapters.Main || len(info) == 0 || info[0] != '{' {
		return
	}
	v := adapters.Fields(info, "last_token_usage", "model_context_window", "total_token_usage")
	if v[0] == nil {
		return
	}
	n := adapters.Fields(v[0], "input_tokens", "cached_input_tokens", "output_tokens")
	raw := adapters.Encode([]int64{adapters.Int(n[0]), adapters.Int(n[1]), adapters.Int(n[2]), adapters.Int(v[1]), adapters.Int(adapters.Fields(v[2], "total_tokens")[0])})
	if s.Usage != nil && string(s.Usage.Raw) == string(raw) {
		return
	}
	s.Usage = &usage{From: s.c.Ident(), Raw: raw}
}

func (s *session) pendingUsage() *protocol.Usage {
	if s.Usage == nil || s.Usage.Sent {
		return nil
	}
	var n []int64
	if json.Unmarshal(s.Usage.Raw, &n) != nil || len(n) < 4 {
		return nil
	}
	return tokens(n[0], n[1], n[2], n[3])
}

func (s *session) sentUsage() {
	if s.stream == adapters.Main && s.Usage != nil {
		s.Usage.Sent = true
	}
}

// flushUsage reports a count that no envelope carried.
func (s *session) flushUsage() {
	if u := s.pendingUsage(); u != nil {
		s.c.Usage(s.Usage.From, u)
		s.Usage.Sent = true
	}
}

// tokens makes a usage report. Codex counts cached tokens among the input, the app beside it.
func tokens(input, cached, output, window int64) *protocol.Usage {
	const limit = 1 << 50
	if input == 0 && output == 0 || input < 0 || input > limit || output < 0 || output > limit || window < 0 || window > limit {
		return nil
	}
	u := &protocol.Usage{InputTokens: input, OutputTokens: output}
	if cached > 0 && cached <= input {
		u.InputTokens -= cached
		u.CacheReadInputTokens = &cached
	}
	if window > 0 {
		u.ContextWindow = &window
	}
	return u
}
