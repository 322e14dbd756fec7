package cases

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Case is one test case.
type Case struct {
	Name string
	Dir  string
	Assert
	Steps []Step // of a "tail" or "net" case
}

// Assert is what must come out.
type Assert struct {
	Kind       string             `json:"kind"`
	Sessions   map[string]Session `json:"sessions"`
	Forbid     []Pattern          `json:"forbid"`
	Invariants []string           `json:"invariants"`
}

// Session is what one stream must look like.
type Session struct {
	Sequence json.RawMessage `json:"sequence"`
	Exact    bool            `json:"exact"`
	Ignore   []Pattern       `json:"ignore"`
	Count    []Count         `json:"count"`
	Forbid   []Pattern       `json:"forbid"`
}

// Count says how often a pattern matches.
type Count struct {
	Pattern Pattern         `json:"pattern"`
	N       json.RawMessage `json:"n"`
}

// Step is something that happens while the daemon runs. Paths are relative to the machine, From to the case's in directory.
type Step struct {
	Op      string `json:"op"`
	Path    string `json:"path"`
	From    string `json:"from"`
	To      string `json:"to"`
	How     string `json:"how"`
	Expect  string `json:"expect"`
	Prefix  string `json:"prefix"`
	Unit    string `json:"unit"`
	Suffix  string `json:"suffix"`
	Times   int    `json:"times"`
	Size    int64  `json:"size"`
	MS      int    `json:"ms"`
	AgeDays int    `json:"age_days"`
	Variant string `json:"variant"`
}

// Load reads a case.
func Load(dir string) (*Case, error) {
	c := &Case{Name: filepath.Base(dir), Dir: dir}
	if err := readJSON(filepath.Join(dir, "assert.json"), &c.Assert); err != nil {
		return nil, err
	}
	if c.Kind == "tail" || c.Kind == "net" {
		if err := readJSON(filepath.Join(dir, "in", "steps.json"), &c.Steps); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// LoadAll reads every case below a directory.
func LoadAll(dir string) (out []*Case, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if !e.IsDir() {
			continue
		}
		c, err := Load(filepath.Join(dir, e.Name()))
		if err != nil {
			return nil, err
		}
		out = append(out, c)
	}
	return out, nil
}

func readJSON(path string, into any) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(b, into); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// In is a path of the case's input.
func (c *Case) In(rel string) string { return filepath.Join(c.Dir, "in", filepath.FromSlash(rel)) }

// Needs says whether the input holds files of a provider, by the name of its home ("claude", "codex").
func (c *Case) Needs(provider string) bool {
	if _, err := os.Stat(c.In("home/." + provider)); err == nil {
		return true
	}
	for _, s := range c.Steps {
		if strings.HasPrefix(s.Path, "home/."+provider+"/") {
			return true
		}
	}
	return false
}

// Files lists the files of in/home in the order in which an agent could have written them: a log before its subagents' logs.
func (c *Case) Files() (out []string, err error) {
	root := c.In("home")
	if _, err := os.Stat(root); err != nil {
		return nil, nil
	}
	err = filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		rel, err := filepath.Rel(root, path)
		out = append(out, rel)
		return err
	})
	return out, err
}
