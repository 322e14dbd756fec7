//go:build unix

package e2e

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sort"
	"strings"
	"testing"
	"time"

	"github.com/happyd/happyd/e2e/harness"
)

// A recording is a tree of logs with the order and the time in which their lines became visible, as an agent wrote them.
type recording struct {
	dir    string
	events []recorded
}

// recorded is one line of a schedule: lines of a log became visible up to number N, a sidecar file was written, or the agent's
// process file changed (null: it was removed).
type recorded struct {
	T    float64         `json:"t"` // seconds
	F    string          `json:"f"` // path below projects/
	N    int             `json:"n"`
	Meta json.RawMessage `json:"meta"`
	Sess json.RawMessage `json:"sess"`
}

func readRecording(t *testing.T, dir string) *recording {
	t.Helper()
	f, err := os.Open(filepath.Join(dir, "schedule.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r := &recording{dir: dir}
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var e recorded
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			t.Fatal(err)
		}
		r.events = append(r.events, e)
	}
	return r
}

// player writes a recording into a machine's home.
type player struct {
	t      *testing.T
	m      *harness.Machine
	r      *recording
	lines  map[string][][]byte
	pos    map[string]int
	agents map[int]*exec.Cmd // by the recorded process id: what stands for the agent's process
	last   int               // recorded id of the process whose file is there
}

// play writes everything at a multiple of the recorded speed. Then the agents' processes end.
func (r *recording) play(t *testing.T, m *harness.Machine, speed float64) {
	p := &player{t: t, m: m, r: r, lines: map[string][][]byte{}, pos: map[string]int{}, agents: map[int]*exec.Cmd{}}
	defer p.endAgents()
	began := time.Now()
	seen := map[string]bool{}
	for _, e := range r.events {
		time.Sleep(time.Duration(e.T/speed*float64(time.Second)) - time.Since(began))
		switch {
		case e.F != "" && e.N > 0:
			if id := sessionOf(e.F); !seen[id] && !r.hasProcess() {
				seen[id] = true
				p.process(len(seen), map[string]any{"sessionId": id, "kind": "interactive", "status": "busy"})
			}
			p.append(e.F, e.N)
		case e.F != "":
			p.meta(e.F, e.Meta)
		case len(e.Sess) > 0 && string(e.Sess) != "null":
			var s map[string]any
			if err := json.Unmarshal(e.Sess, &s); err != nil {
				t.Fatal(err)
			}
			pid, _ := s["pid"].(float64)
			p.process(int(pid), s)
		case string(e.Sess) == "null" && p.last != 0:
			_ = os.Remove(p.processPath(p.last))
		}
	}
	p.rest()
}

// hasProcess says whether the recording caught the agent's process file.
func (r *recording) hasProcess() bool {
	for _, e := range r.events {
		if len(e.Sess) > 0 && string(e.Sess) != "null" {
			return true
		}
	}
	return false
}

func sessionOf(rel string) string {
	parts := strings.Split(rel, "/")
	if len(parts) < 2 {
		return rel
	}
	return strings.TrimSuffix(parts[1], ".jsonl")
}

func (p *player) path(rel string) string {
	return filepath.Join(p.m.Home, ".claude", "projects", filepath.FromSlash(rel))
}

func (p *player) load(rel string) [][]byte {
	if _, ok := p.lines[rel]; !ok {
		data, err := os.ReadFile(filepath.Join(p.r.dir, "projects", filepath.FromSlash(rel)))
		if err != nil {
			data = nil
		}
		p.lines[rel] = bytes.SplitAfter(data, []byte("\n"))
	}
	return p.lines[rel]
}

// append makes the lines of a log visible up to number n.
func (p *player) append(rel string, n int) {
	all := p.load(rel)
	if from := p.pos[rel]; n > from && n <= len(all) {
		appendFile(p.t, p.path(rel), string(bytes.Join(all[from:n], nil)))
		p.pos[rel] = n
	}
}

func (p *player) meta(rel string, content json.RawMessage) {
	if len(content) == 0 || string(content) == "null" {
		return
	}
	p.replace(p.path(rel), content)
}

func (p *player) replace(path string, content []byte) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		p.t.Fatal(err)
	}
	if err := os.WriteFile(path+".tmp", content, 0o644); err != nil {
		p.t.Fatal(err)
	}
	if err := os.Rename(path+".tmp", path); err != nil {
		p.t.Fatal(err)
	}
}

// rest writes what the recording did not catch.
func (p *player) rest() {
	root := filepath.Join(p.r.dir, "projects")
	err := filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		rel = filepath.ToSlash(rel)
		if strings.HasSuffix(rel, ".jsonl") {
			p.append(rel, len(p.load(rel)))
			return nil
		}
		if _, err := os.Stat(p.path(rel)); err == nil {
			return nil
		}
		data, err := os.ReadFile(path)
		if err == nil {
			p.replace(p.path(rel), data)
		}
		return err
	})
	if err != nil {
		p.t.Fatal(err)
	}
}

func (p *player) processPath(pid int) string {
	return filepath.Join(p.m.Home, ".claude", "sessions", fmt.Sprint(p.agents[pid].Process.Pid)+".json")
}

// process writes the process file of an agent. A sleeping process stands for it; when the next agent of a recording comes, the
// one before has died.
func (p *player) process(pid int, s map[string]any) {
	if p.agents[pid] == nil {
		if p.r.hasProcess() {
			p.endAgents()
		}
		cmd := exec.Command("sleep", "600")
		if err := cmd.Start(); err != nil {
			p.t.Fatal(err)
		}
		p.agents[pid] = cmd
	}
	p.last = pid
	s["pid"] = p.agents[pid].Process.Pid
	s["procStart"] = procStart(p.agents[pid].Process.Pid)
	s["updatedAt"], s["statusUpdatedAt"] = time.Now().UnixMilli(), time.Now().UnixMilli()
	for k, v := range s {
		if v == nil {
			delete(s, k)
		}
	}
	data, err := json.Marshal(s)
	if err != nil {
		p.t.Fatal(err)
	}
	p.replace(p.processPath(pid), data)
}

// procStart is a process's start as the system has it; "" where it does not say.
func procStart(pid int) string {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return ""
	}
	fields := strings.Fields(string(data[bytes.LastIndexByte(data, ')')+1:]))
	if len(fields) < 20 {
		return ""
	}
	return fields[19]
}

// endAgents ends what stands for the agents' processes. Their files stay, as after a kill.
func (p *player) endAgents() {
	for _, cmd := range p.agents {
		if cmd.ProcessState == nil {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
	}
}

// recordings lists the folders below dir that hold a schedule.
func recordings(t *testing.T, dir string) (out []string) {
	t.Helper()
	for _, pattern := range []string{"*/schedule.jsonl", "*/*/schedule.jsonl"} {
		found, err := filepath.Glob(filepath.Join(dir, pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range found {
			out = append(out, filepath.Dir(f))
		}
	}
	sort.Strings(out)
	return out
}
