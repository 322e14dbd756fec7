package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestProjectsMatch(t *testing.T) {
	tests := []struct {
		goos, glob, cwd string
		want            bool
	}{
		{"linux", "/a/b", "/a/b", true},
		{"linux", "/a/b", "/a/b/c/d", true},
		{"linux", "/a/b", "/a/bc", false},
		{"linux", "/a/b", "/a", false},
		{"linux", "/a/b/", "/a/b", true},
		{"linux", "/a/./x/../b", "/a/b", true},
		{"linux", "/a/b", "/a/b/../c", false},
		{"linux", "/", "/anything", true},
		{"linux", "/a/*", "/a", false},
		{"linux", "/a/*", "/a/x/y", true},
		{"linux", "/a/*/c", "/a/x/c", true},
		{"linux", "/a/*/c", "/a/x/y/c", false},
		{"linux", "/a/**/c", "/a/x/y/c", true},
		{"linux", "/a/**/c", "/a/c", true},
		{"linux", "/a/**/c/**/e", "/a/c/x/c/d/e/f", true},
		{"linux", "/a/**/c/**/e", "/a/e/c", false},
		{"linux", "/a/**", "/a", true},
		{"linux", "**", "/x", true},
		{"linux", "~/code", "/home/u/code/p", true},
		{"linux", "~/code", "/home/v/code/p", false},
		{"linux", "~", "/home/u/p", true},
		{"linux", "secret-*", "/x/y/secret-1/z", true},
		{"linux", "secret-*", "/x/y/not-secret-1", false},
		{"linux", "clients/acme", "/home/u/clients/acme/api", true},
		{"linux", "/a/[bc]", "/a/c", true},
		{"linux", "/a/b?", "/a/bx", true},
		{"linux", "/A/B", "/a/b", false},
		{"darwin", "/A/B", "/a/b/c", true},
		{"windows", `C:\Users\me\*`, `c:\users\ME\proj`, true},
		{"windows", `C:/Users/me`, `C:\Users\me\proj`, true},
		{"windows", `C:\Users\me`, `D:\Users\me`, false},
		{"windows", `secret`, `C:\x\secret\y`, true},
	}
	for _, tt := range tests {
		t.Run(strings.ReplaceAll(tt.goos+" "+tt.glob+" "+tt.cwd, "/", "|"), func(t *testing.T) {
			env := Env{GOOS: tt.goos, Home: "/home/u"}
			p := NewProjects(nil, []string{tt.glob}, env)
			if got := p.Excluded(tt.cwd); got != tt.want {
				t.Errorf("Excluded = %v", got)
			}
			p = NewProjects([]string{tt.glob}, nil, env)
			if got := p.Included(tt.cwd); got != tt.want {
				t.Errorf("Included = %v", got)
			}
		})
	}
}

func TestProjectsUnknownDirectory(t *testing.T) {
	var none Projects
	if none.Included("") || none.Excluded("") {
		t.Error("an unknown directory is neither included nor excluded")
	}
	if !none.Included("/x") || none.Excluded("/x") {
		t.Error("without patterns everything known is included")
	}
}

func TestProjectsFollowLinks(t *testing.T) {
	home, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	real := filepath.Join(home, "disk", "private")
	if err := os.MkdirAll(real, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(real, filepath.Join(home, "private")); err != nil {
		t.Skip("no symbolic links here")
	}
	p := NewProjects(nil, []string{"~/private/*/x"}, HomeEnv(home))
	for _, dir := range []string{filepath.Join(home, "private", "a", "x"), filepath.Join(real, "a", "x", "y")} {
		if !p.Excluded(dir) {
			t.Errorf("%s is not excluded", dir)
		}
	}
	if p.Excluded(filepath.Join(real, "a")) {
		t.Error("too much is excluded")
	}
}

func TestProjectsManyStarsStayFast(t *testing.T) {
	glob := strings.Repeat("/**/a", 100) + "/b"
	p := NewProjects(nil, []string{glob}, Env{GOOS: "linux", Home: "/"})
	start := time.Now()
	if p.Excluded(strings.Repeat("/a", 3000)) {
		t.Error("matched")
	}
	if d := time.Since(start); d > 5*time.Second {
		t.Errorf("took %v", d)
	}
}

func TestNearest(t *testing.T) {
	known := []string{"url", "proxy", "ca_file"}
	for word, want := range map[string]string{
		"ulr": "url", "URL": "url", "prox": "proxy", "ca_flie": "ca_file", "x": "", "nothing": "",
		strings.Repeat("u", 1000): "",
	} {
		if got := Nearest(word, known); got != want {
			t.Errorf("Nearest(%q) = %q, want %q", word, got, want)
		}
	}
}

func TestSizesAndHistories(t *testing.T) {
	for _, s := range []string{"0", "1KiB", "64MiB", "3GiB", "1500"} {
		v, err := ParseSize(s)
		if err != nil || v.String() != s {
			t.Errorf("ParseSize(%q) = %v, %v", s, v, err)
		}
	}
	if v, err := ParseSize(" 2 mb "); err != nil || v != 2_000_000 {
		t.Errorf("got %d, %v", v, err)
	}
	for _, s := range []string{"none", "all", "24h", "1h30m0s"} {
		v, err := ParseHistory(s)
		if err != nil || v.String() != s {
			t.Errorf("ParseHistory(%q) = %v, %v", s, v, err)
		}
	}
	for _, s := range []string{"", "0h", "d", "-1d", "1d-5h", "99999d", "x"} {
		if v, err := ParseHistory(s); err == nil {
			t.Errorf("ParseHistory(%q) = %v", s, v)
		}
	}
	now := time.Now()
	for _, tt := range []struct {
		h    History
		age  time.Duration
		want bool
	}{
		{History{}, 0, false},
		{History{All: true}, 1e6 * time.Hour, true},
		{History{Window: time.Hour}, 59 * time.Minute, true},
		{History{Window: time.Hour}, 61 * time.Minute, false},
		{History{Window: time.Hour}, -time.Minute, true},
	} {
		if got := tt.h.Covers(now.Add(-tt.age), now); got != tt.want {
			t.Errorf("%v covers %v: %v", tt.h, tt.age, got)
		}
	}
}
