package claude_test

import (
	"crypto/sha256"
	"fmt"
	"strings"
	"testing"

	"github.com/happyd/happyd/adapters"
	"github.com/happyd/happyd/adapters/claude"
	"github.com/happyd/happyd/bridge"
	"github.com/happyd/happyd/buffer"
	"github.com/happyd/happyd/internal/pumptest"
	"github.com/happyd/happyd/watch"
)

// busyFile is a log as current versions write them: nearly nine bytes in ten are snapshots, listings and request copies that
// stay on the machine.
func busyFile(turns int) (recs []watch.Record, bytes, noise int64) {
	prose := strings.Repeat(`You are an agent. \"Quoted\" text, code like {\n\t\"a\": [1, 2]\n} and plain words follow each other. `, 40)
	add := func(isNoise bool, line string) {
		off := bytes
		bytes += int64(len(line)) + 1
		if isNoise {
			noise += int64(len(line)) + 1
		}
		recs = append(recs, watch.Record{Path: "log", Offset: off, Next: bytes, Data: []byte(line), Size: int64(len(line)), Sum: sha256.Sum256([]byte(line))})
	}
	n := 0
	env := func() string {
		n++
		return fmt.Sprintf(`"uuid":"%08d-0000-4000-8000-000000000000","timestamp":"2026-03-02T10:%02d:%02d.%03dZ","userType":"external","entrypoint":"cli","cwd":"/home/ada/lab","sessionId":"s","version":"2.1.332","gitBranch":"main"}`, n, n/60000%60, n/1000%60, n%1000)
	}
	head := `{"parentUuid":"00000000-0000-4000-8000-000000000000","isSidechain":false,`
	for i := range turns {
		add(false, head+`"promptId":"p`+fmt.Sprint(i)+`","type":"user","message":{"role":"user","content":"Prompt number `+fmt.Sprint(i)+`"},"origin":{"kind":"human"},`+env())
		add(true, head+`"attachment":{"type":"prompt_snapshot","systemPrompt":["`+prose+prose+prose+prose+`"]},"type":"attachment",`+env())
		add(true, `{"type":"api-request-shape","shape":{"system":"`+prose+`","tools":[`+strings.Repeat(`{"name":"Bash","input_schema":{"type":"object"}},`, 40)+`{}]}}`)
		add(true, head+`"attachment":{"type":"skill_listing","content":"`+prose[:len(prose)/2]+`"},"type":"attachment",`+env())
		add(true, `{"type":"api-request-blob","hash":"x","message":{"role":"user","content":"`+prose[:len(prose)/2]+`"}}`)
		for j := range 2 {
			id := fmt.Sprintf("toolu_%024d", i*2+j)
			add(false, head+`"message":{"id":"msg_`+id+`","model":"m","content":[{"type":"text","text":"I will look at it now, step by step."}],"stop_reason":"tool_use","usage":{"input_tokens":5,"output_tokens":7}},"type":"assistant",`+env())
			add(false, head+`"message":{"id":"msg_`+id+`","model":"m","content":[{"type":"tool_use","id":"`+id+`","name":"Bash","input":{"command":"go test ./...","description":"Run tests"}}],"stop_reason":"tool_use","usage":{"input_tokens":5,"output_tokens":7}},"type":"assistant",`+env())
			add(false, head+`"type":"user","message":{"role":"user","content":[{"tool_use_id":"`+id+`","type":"tool_result","content":"ok  \tpackage\n"}]},"toolUseResult":{"stdout":"`+prose[:800]+`"},`+env())
		}
		add(false, head+`"message":{"id":"msg_end`+fmt.Sprint(i)+`","model":"m","content":[{"type":"text","text":"All tests pass."}],"stop_reason":"end_turn","usage":{"input_tokens":5,"output_tokens":7}},"type":"assistant",`+env())
		add(false, head+`"type":"system","subtype":"turn_duration","durationMs":5,`+env())
	}
	return recs, bytes, noise
}

// BenchmarkMap maps a busy log from record to envelope.
func BenchmarkMap(b *testing.B) {
	recs, bytes, noise := busyFile(200)
	b.SetBytes(bytes)
	place := adapters.Place{Session: "s"}
	for b.Loop() {
		pump, err := bridge.NewPump(claude.Provider{}, adapters.SessionOptions{ID: "s", Tag: "t", Seen: pumptest.Seen{}}, buffer.New(buffer.NewBudget(1<<20), nil), nil)
		if err != nil {
			b.Fatal(err)
		}
		for _, r := range recs {
			pump.Feed(place, r, start)
		}
		if out, _ := pump.Take(); len(out) < 200*8 {
			b.Fatal(len(out))
		}
	}
	b.ReportMetric(float64(100*noise)/float64(bytes), "%noise")
}
