package watch

import (
	"testing"
)

// A record is torn at every byte: what remains is no record, and the one glued to it is found.
func TestTornAtEveryByte(t *testing.T) {
	for _, c := range []struct{ name, torn, next string }{
		{
			"claude", `{"parentUuid":"a-1","isSidechain":false,"message":{"id":"m","role":"assistant","content":[{"type":"text","text":"say \"hi\" \u00e9\\ {\"x\":1}"},{"type":"tool_use","id":"t","input":{"command":"ls {a,b}","n":-1.5e3}}],"usage":{"in":[1,2,[]],"out":{}}},"uuid":"u","ok":true,"no":null}`,
			`{"parentUuid":null,"type":"user","message":{"content":"next"}}`,
		},
		{
			"codex", `{"timestamp":"2026-01-01T00:00:00Z","type":"event_msg","payload":{"type":"agent_message","message":"{\"a\": [1, 2]}","phase":null}}`,
			`{"timestamp":"2026-01-01T00:00:01Z","type":"event_msg","payload":{"type":"token_count","info":{"n":1}}}`,
		},
		{
			"spaces", `{"type": "a", "message": {"text": "x y", "list": [ { "k" : "v" } ] } }`,
			`{"type": "b", "message": {}}`,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			for i := 1; i < len(c.torn); i++ {
				var p parser
				stub := c.torn[:i]
				if got := p.line(line{raw: []byte(stub), next: int64(i + 1)}); len(got) > 0 || p.skips != (Skips{Invalid: 1}) {
					t.Fatalf("torn %q: %d records, %+v", stub, len(got), p.skips)
				}
				p = parser{}
				glued := stub + c.next
				got := p.line(line{raw: []byte(glued), off: 1000, next: int64(1001 + len(glued))})
				if len(got) != 1 || string(got[0].Data) != c.next || got[0].Offset != int64(1000+i) || got[0].Next != int64(1001+len(glued)) || p.skips != (Skips{Glued: 1}) {
					t.Fatalf("glued %q: %d records, %+v", glued, len(got), p.skips)
				}
				// The next writer's record is torn, too.
				p = parser{}
				if got := p.line(line{raw: []byte(stub + c.next[:len(c.next)-1])}); len(got) > 0 {
					t.Fatalf("torn twice %q: %q", stub+c.next[:len(c.next)-1], got[0].Data)
				}
			}
		})
	}
}
