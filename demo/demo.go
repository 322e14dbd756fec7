// Package demo plays a Claude Code session back, so that a machine without any
// agent can show what happyd does.
//
// In goes a home directory; into it the package writes, at human speed, the log
// files of one session with three parallel subagents, as Claude Code 2.1.332
// writes them. The ids are fresh and the timestamps are now, so two replays are
// two sessions. The session itself is invented: transcript.jsonl.
//
// The package writes below the given directory only, and knows nothing of the
// daemon that reads along.
package demo

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Duration is how long a replay at speed 1 takes, about.
const Duration = 25 * time.Second

// transcript holds the steps of the replay, one JSON object a line:
//
//	at    seconds since the start at which the step becomes visible on disk
//	file  "main" or the name of a subagent: rec is appended to its log
//	meta  the name of a subagent: rec becomes its .meta.json
//	ts    when the record was made, if that was before it was written
//	bare  rec has no uuid and none of the fields that most records share
//	say   a line for whoever watches the replay
//
// In a rec, @{kind:name} stands for an id: the same one wherever it appears.
//
//go:embed transcript.jsonl
var transcript []byte

type step struct {
	At   float64         `json:"at"`
	TS   *float64        `json:"ts"`
	File string          `json:"file"`
	Meta string          `json:"meta"`
	Bare bool            `json:"bare"`
	Say  string          `json:"say"`
	Rec  json.RawMessage `json:"rec"`
}

// Replay writes the session into the Claude home below dir (dir/.claude), speed
// times as fast as a person and a model would. log receives a line when
// something worth watching happens; nil is allowed. Replay returns when
// the session is over, or when ctx ends.
func Replay(ctx context.Context, dir string, speed float64, log func(string)) error {
	if !(speed > 0) || math.IsInf(speed, 0) {
		return fmt.Errorf("speed %v is not a positive number", speed)
	}
	if log == nil {
		log = func(string) {}
	}
	steps, err := parse(transcript)
	if err != nil {
		return fmt.Errorf("reading the built-in transcript: %w", err)
	}
	w, err := newWriter(dir, speed)
	if err != nil {
		return fmt.Errorf("preparing the replay: %w", err)
	}
	for i := 0; i < len(steps); {
		s := steps[i]
		if err := sleepUntil(ctx, w.time(s.At)); err != nil {
			return err
		}
		n := batch(steps[i:])
		switch {
		case s.Say != "":
			log(s.Say)
		case s.Meta != "":
			err = w.writeMeta(s)
		default:
			err = w.appendRecords(steps[i : i+n])
		}
		if err != nil {
			return fmt.Errorf("replaying: %w", err)
		}
		i += n
	}
	return nil
}

func parse(data []byte) ([]step, error) {
	var steps []step
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	for dec.More() {
		var s step
		if err := dec.Decode(&s); err != nil {
			return nil, fmt.Errorf("step %d: %w", len(steps)+1, err)
		}
		if len(steps) > 0 && s.At < steps[len(steps)-1].At {
			return nil, fmt.Errorf("step %d goes back in time", len(steps)+1)
		}
		steps = append(steps, s)
	}
	if len(steps) == 0 {
		return nil, errors.New("no steps")
	}
	return steps, nil
}

// batch is how many steps go into one write: Claude Code appends whole API
// messages, results included, in one piece.
func batch(steps []step) int {
	n := 1
	for steps[0].File != "" && n < len(steps) && steps[n].File == steps[0].File && steps[n].At == steps[0].At {
		n++
	}
	return n
}

func sleepUntil(ctx context.Context, t time.Time) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	d := time.Until(t)
	if d <= 0 {
		return nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

// writer knows where the session's files are and what its ids stand for.
type writer struct {
	start   time.Time
	speed   float64
	ids     ids
	cwd     string            // the session's working directory
	project string            // where its logs are
	last    map[string]string // file -> uuid of its last record
}

func newWriter(dir string, speed float64) (*writer, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	cwd := filepath.Join(dir, "projects", "tea-timer")
	// Claude Code logs the resolved directory and names the logs' one after it.
	if err := os.MkdirAll(cwd, 0o755); err != nil {
		return nil, err
	}
	if real, err := filepath.EvalSymlinks(cwd); err == nil {
		cwd = real
	}
	project := filepath.Join(dir, ".claude", "projects", slug(cwd))
	if err := os.MkdirAll(project, 0o755); err != nil {
		return nil, err
	}
	return &writer{
		start: time.Now(), speed: speed, ids: ids{}, cwd: cwd, project: project, last: map[string]string{},
	}, nil
}

// slug turns a directory into the name under which its logs are kept.
func slug(dir string) string {
	s := strings.Map(func(r rune) rune {
		if r >= '0' && r <= '9' || r >= 'A' && r <= 'Z' || r >= 'a' && r <= 'z' {
			return r
		}
		return '-'
	}, dir)
	return s[:min(len(s), 200)]
}

// time is when a moment of the transcript takes place in this replay.
func (w *writer) time(at float64) time.Time {
	return w.start.Add(time.Duration(at / w.speed * float64(time.Second)))
}

func (w *writer) path(file string) string {
	session := w.ids.get("session", "main")
	if file == "main" {
		return filepath.Join(w.project, session+".jsonl")
	}
	return filepath.Join(w.project, session, "subagents", "agent-"+w.ids.get("agent", file)+".jsonl")
}

func (w *writer) appendRecords(steps []step) error {
	var lines []byte
	for _, s := range steps {
		line, err := w.record(s)
		if err != nil {
			return err
		}
		lines = append(append(lines, line...), '\n')
	}
	path := w.path(steps[0].File)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(lines)
	return errors.Join(err, f.Close())
}

// record adds to a step's record what all records of its file have.
func (w *writer) record(s step) ([]byte, error) {
	at := s.At
	if s.TS != nil {
		at = *s.TS
	}
	stamp := w.time(at).UTC().Format("2006-01-02T15:04:05.000Z")
	rec := w.ids.replace(s.Rec, map[string]string{
		"time": stamp, "cwd": w.cwd, "last": w.last[s.File],
	})
	if s.Bare {
		return rec, nil
	}
	var head, tail bytes.Buffer
	uuid := w.ids.fresh("uuid")
	fmt.Fprintf(&head, `{"parentUuid":%s,"isSidechain":%t,`, orNull(w.last[s.File]), s.File != "main")
	if s.File != "main" {
		fmt.Fprintf(&head, `"agentId":%q,`, w.ids.get("agent", s.File))
	}
	cwd, err := json.Marshal(w.cwd)
	if err != nil {
		return nil, err
	}
	fmt.Fprintf(&tail, `,"uuid":%q,"timestamp":%q,"userType":"external","entrypoint":"cli","cwd":%s,"sessionId":%q,"version":"2.1.332","gitBranch":"main"}`,
		uuid, stamp, cwd, w.ids.get("session", "main"))
	w.last[s.File] = uuid
	rec = bytes.TrimSpace(rec)
	return bytes.Join([][]byte{head.Bytes(), rec[1 : len(rec)-1], tail.Bytes()}, nil), nil
}

func orNull(uuid string) string {
	if uuid == "" {
		return "null"
	}
	return `"` + uuid + `"`
}

// writeMeta replaces a subagent's meta file in one step, as the original does.
func (w *writer) writeMeta(s step) error {
	path := strings.TrimSuffix(w.path(s.Meta), ".jsonl") + ".meta.json"
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	tmp := path + ".tmp." + w.ids.fresh("agent")
	if err := os.WriteFile(tmp, w.ids.replace(s.Rec, nil), 0o644); err != nil {
		return err
	}
	return os.Rename(tmp, path)
}
