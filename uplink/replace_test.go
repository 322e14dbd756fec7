package uplink

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/happyd/happyd/protocol"
	"github.com/happyd/happyd/store"
	"github.com/happyd/happyd/uplink/fakehappy"
)

// TestCutShrinksToNothing: cutting again and again ends, stays valid, and
// keeps what gives the stream its shape.
func TestCutShrinksToNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		env := protocol.Envelope{ID: protocol.DeriveID("e"), Time: 5, Role: protocol.RoleAgent, Turn: protocol.DeriveID("t")}
		filler := rapid.SampledFrom([]string{"x", "\"", "é", "🙂", "\n", "[… cut by happyd", "\x00"}).Draw(t, "filler")
		n := rapid.IntRange(0, 40_000).Draw(t, "n")
		if rapid.Bool().Draw(t, "tool") {
			args := map[string]any{"sessionSubagent": "csub", "n": 3, "long": strings.Repeat(filler, n), "list": []string{strings.Repeat(filler, n/2)}}
			raw, err := json.Marshal(args)
			if err != nil {
				t.Fatal(err)
			}
			env.Ev = protocol.Event{T: protocol.TypeToolStart, Call: "c", Name: "Agent", Title: "t", Description: "d", Args: raw}
		} else {
			env.Ev = protocol.Event{T: protocol.TypeText, Text: protocol.CleanText(strings.Repeat(filler, n)) + "."}
		}
		for round := 0; ; round++ {
			plain, err := protocol.Wrap(env)
			if err != nil {
				t.Fatal(err)
			}
			if !cut(&env, len(plain), len(plain)) {
				break
			}
			if round > 40 {
				t.Fatalf("still %d bytes after %d cuts", len(plain), round)
			}
			if !utf8.ValidString(env.Ev.Text) {
				t.Fatal("cut inside a character")
			}
			if env.Ev.T == protocol.TypeToolStart {
				var args map[string]json.RawMessage
				if err := json.Unmarshal(env.Ev.Args, &args); err != nil || string(args["sessionSubagent"]) != `"csub"` || string(args["n"]) != "3" {
					t.Fatalf("args %.200s, %v", env.Ev.Args, err)
				}
			}
		}
		if plain, err := protocol.Wrap(env); err != nil || len(plain) > 8000 {
			t.Fatalf("cut no further at %d bytes, %v", len(plain), err)
		}
	})
}

func TestStandInIsAValidEnvelope(t *testing.T) {
	entry := func(turn, kind string) store.Entry {
		return store.Entry{Seq: 1, Message: store.Message{LocalID: "l1", Turn: turn, Kind: kind, Sealed: make([]byte, 3<<20)}}
	}
	read := protocol.Envelope{Time: 77, Role: protocol.RoleAgent, Subagent: "csub"}
	for i, tt := range []struct {
		entry    store.Entry
		env      protocol.Envelope
		readable bool
		want     string
	}{
		{entry(protocol.DeriveID("t"), "tool-call-start"), read, true, "agent service 77 csub a tool-call-start of 3.0 MiB"},
		{entry(protocol.DeriveID("t"), "text/cut"), protocol.Envelope{}, false, "agent service 9000  a text of 3.0 MiB"},
		{entry("", "file"), protocol.Envelope{Time: 8}, true, "user text 8  a file of 3.0 MiB"},
		{entry("", ""), protocol.Envelope{}, false, "user text 9000  a message of 3.0 MiB"},
	} {
		e := standIn(tt.entry, tt.env, tt.readable, time.UnixMilli(9000))
		if err := e.Validate(); err != nil {
			t.Errorf("%d: %v", i, err)
		}
		got := fmt.Sprintf("%s %s %d %s", e.Role, e.Ev.T, e.Time, e.Subagent)
		if want, text, _ := strings.Cut(tt.want, " a "); got != want || !strings.Contains(e.Ev.Text, "a "+text) {
			t.Errorf("%d: %s, %q", i, got, e.Ev.Text)
		}
	}
}

func TestUnreadableEntryIsReplaced(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		m := r.seal("a", r.envelope("a", protocol.Event{T: protocol.TypeText, Text: "m1"}))
		m.Sealed = []byte(strings.Repeat("junk", 10_000))
		r.commit(store.Commit{Session: "a", Info: r.info("a", "t", 0), Messages: []store.Message{m}})
		r.fake.SetFault(fakehappy.TooLarge(20_000))
		r.start()
		settle(time.Minute)
		got := r.received("a")
		if len(got) != 1 || got[0].Ev.T != protocol.TypeService {
			t.Errorf("the server has %+v", got)
		}
	})
}
