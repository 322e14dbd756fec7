package socketio

import (
	"bytes"
	"encoding/json"
	"math"
	"strings"
	"testing"

	"pgregory.net/rapid"

	_ "github.com/happyd/happyd/internal/rapidseed"
)

func TestDecode(t *testing.T) {
	tests := []struct {
		name, in string
		event    string // of an event packet
		id       int64
		nsp      string
		data     string
		err      string // part of the error
	}{
		{name: "event", in: `42["a",1]`, event: "a", id: noID, nsp: "/", data: `["a",1]`},
		{name: "event with ack", in: `4217["a"]`, event: "a", id: 17, nsp: "/", data: `["a"]`},
		{name: "event of a namespace", in: `42/x?q=1,3["a"]`, event: "a", id: 3, nsp: "/x?q=1", data: `["a"]`},
		{name: "ack", in: `430[]`, id: 0, nsp: "/", data: `[]`},
		{name: "connect", in: `40{"token":"t"}`, id: noID, nsp: "/", data: `{"token":"t"}`},
		{name: "connect without auth", in: `40`, id: noID, nsp: "/"},
		{name: "connect to a namespace without a comma", in: `40/x`, id: noID, nsp: "/x"},
		{name: "connect_error object", in: `44{"message":"m"}`, id: noID, nsp: "/", data: `{"message":"m"}`},
		{name: "connect_error string", in: `44"m"`, id: noID, nsp: "/", data: `"m"`},
		{name: "disconnect", in: `41`, id: noID, nsp: "/"},
		{name: "binary event", in: `451-["a",{"_placeholder":true,"num":0}]`, data: `1-["a",{"_placeholder":true,"num":0}]`, id: noID, nsp: "/"},
		{name: "separator and zero characters", in: "42[\"a\",\"\u2028\\u0000\U0001F600\"]", event: "a", id: noID, nsp: "/", data: "[\"a\",\"\u2028\\u0000\U0001F600\"]"},

		{name: "nothing", in: "", err: "empty"},
		{name: "unknown engine type", in: "9", err: "engine type"},
		{name: "no socket type", in: "4", err: "no socket packet type"},
		{name: "unknown socket type", in: "47", err: "unknown socket packet type"},
		{name: "event without a payload", in: "42", err: "no JSON array"},
		{name: "event with an object", in: `42{"a":1}`, err: "no JSON array"},
		{name: "event that is cut off", in: `42["a"`, err: "no JSON array"},
		{name: "event with more behind", in: `42["a"]x`, err: "no JSON array"},
		{name: "event without a name", in: `42[]`, err: "without a name"},
		{name: "event with a number for a name", in: `42[1]`, err: "without a name"},
		{name: "reserved event", in: `42["disconnect"]`, err: "reserved"},
		{name: "ack without a number", in: `43[]`, err: "without a number"},
		{name: "number out of range", in: `4299999999999999999999["a"]`, err: "out of range"},
		{name: "number beyond JavaScript", in: `429007199254740992["a"]`, err: "out of range"},
		{name: "connect with an array", in: `40[]`, err: "no JSON object"},
		{name: "connect_error without a payload", in: `44`, err: "neither"},
		{name: "disconnect with a payload", in: `41{}`, err: "carries"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f, err := decode([]byte(tt.in))
			if tt.err != "" {
				if err == nil || !strings.Contains(err.Error(), tt.err) {
					t.Fatalf("error %v, want one with %q", err, tt.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			p := f.packet
			if p.id != tt.id || p.nsp != tt.nsp || string(p.data) != tt.data {
				t.Errorf("got id %d, namespace %q, data %q", p.id, p.nsp, p.data)
			}
			if tt.event != "" && p.event() != tt.event {
				t.Errorf("got event %q", p.event())
			}
		})
	}
}

// Whatever comes in, decode does not panic, and what it accepts survives a
// round trip.
func FuzzPacket(f *testing.F) {
	for _, s := range []string{
		"", "0{\"sid\":\"x\"}", "1", "2probe", "3", "40", "40{}", "41", `42["a",{"b":[]}]`, `4212["a"]`, `42/n,1["a"]`,
		`437["x"]`, `44{"message":"m"}`, `44"m"`, `451-["a"]`, "4", "5", "6", `42["\ud800"]`, `4200["a"]`, `42/["a"]`, "40/,",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		a, err := decode(in)
		if err != nil {
			return
		}
		first := a.encode()
		b, err := decode(first)
		if err != nil {
			t.Fatalf("%q became %q, which does not decode: %v", in, first, err)
		}
		if second := b.encode(); !bytes.Equal(first, second) {
			t.Fatalf("%q became %q, then %q", in, first, second)
		}
		if a.engine != b.engine || a.packet.kind != b.packet.kind || a.packet.id != b.packet.id || a.packet.nsp != b.packet.nsp ||
			!bytes.Equal(a.packet.data, b.packet.data) || len(a.packet.args) != len(b.packet.args) {
			t.Fatalf("%q changed its meaning: %+v, %+v", in, a, b)
		}
	})
}

func TestEventRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.StringN(1, 20, -1).Filter(func(s string) bool { return !reserved[s] }).Draw(t, "name")
		id := rapid.OneOf(rapid.Just(int64(noID)), rapid.Int64Range(0, maxID)).Draw(t, "id")
		args := rapid.SliceOf(rapid.OneOf(
			rapid.Just(any(nil)), rapid.String().AsAny(), rapid.Bool().AsAny(),
			rapid.Float64Range(-math.MaxFloat64, math.MaxFloat64).AsAny(),
			rapid.MapOf(rapid.String(), rapid.String()).AsAny(),
		)).Draw(t, "args")
		b, err := eventFrame(id, name, args)
		if err != nil {
			t.Fatal(err)
		}
		f, err := decode(b)
		if err != nil {
			t.Fatal(err)
		}
		if f.packet.kind != kindEvent || f.packet.id != id || f.packet.event() != name || len(f.packet.args) != len(args)+1 {
			t.Fatalf("got %+v", f.packet)
		}
		for i, arg := range args {
			want, err := json.Marshal(arg)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(f.packet.args[i+1], want) {
				t.Fatalf("argument %d: got %s, want %s", i, f.packet.args[i+1], want)
			}
		}
	})
}

func TestEventFrameRefuses(t *testing.T) {
	for name, args := range map[string][]any{"": nil, "connect": nil, "x": {func() {}}} {
		if _, err := eventFrame(noID, name, args); err == nil {
			t.Errorf("event %q with %v: no error", name, args)
		}
	}
	if _, err := ackFrame(1, []any{make(chan int)}); err == nil {
		t.Error("acknowledgement of a channel: no error")
	}
}
