package config

import (
	"errors"
	"fmt"
	"path"
	"path/filepath"
	"strings"
)

// Projects decides by working directory what may leave the machine.
//
// A pattern is compared component by component: `*`, `?` and `[…]` match
// within one component, `**` matches any number of them, a leading `~` is the
// home directory, and a pattern that starts with neither a separator nor `~`
// matches at any depth. A pattern that matches a directory covers everything
// below it. On macOS and Windows case is ignored, as their file systems do.
//
// Agents log the resolved working directory. A pattern whose fixed part runs
// through a symbolic link therefore also stands for the link's target, as it
// is when the configuration is loaded.
type Projects struct {
	// Include lists the directories that are mirrored; empty means all.
	Include []string `yaml:"include"`
	// Exclude lists directories that are withheld, even where Include matches.
	Exclude []string `yaml:"exclude"`

	include, exclude []pattern
	rules            pathRules
}

// pathRules are the platform's ways with paths.
type pathRules struct {
	backslash bool // `\` separates components, too
	foldCase  bool
}

// pattern is a list of components; "**" stands for any number of them.
type pattern []string

const anyDepth = "**"

// NewProjects compiles the patterns for a machine. Malformed ones never match;
// [Load] reports them.
func NewProjects(include, exclude []string, env Env) Projects {
	p := Projects{Include: include, Exclude: exclude, rules: pathRules{
		backslash: env.GOOS == "windows",
		foldCase:  env.GOOS == "windows" || env.GOOS == "darwin",
	}}
	p.include = p.rules.compile(include, env)
	p.exclude = p.rules.compile(exclude, env)
	return p
}

// Included tells whether a session that started in cwd may be mirrored. An
// unknown directory ("") never is.
func (p Projects) Included(cwd string) bool {
	if cwd == "" {
		return false
	}
	return len(p.Include) == 0 || p.rules.matchAny(p.include, cwd)
}

// Excluded tells whether a record written in cwd is withheld.
func (p Projects) Excluded(cwd string) bool {
	return cwd != "" && p.rules.matchAny(p.exclude, cwd)
}

func (r pathRules) compile(globs []string, env Env) []pattern {
	var out []pattern
	for _, g := range globs {
		if checkGlob(g, r.backslash) != nil {
			continue
		}
		out = append(out, r.pattern(env.expandHome(g)))
		if resolved, ok := resolvePrefix(env.expandHome(g)); ok {
			out = append(out, r.pattern(resolved))
		}
	}
	return out
}

// resolvePrefix follows the symbolic links in the part of a glob before its
// first wildcard.
func resolvePrefix(glob string) (string, bool) {
	if !filepath.IsAbs(glob) {
		return "", false
	}
	parts := strings.Split(filepath.ToSlash(glob), "/")
	fixed := 0
	for fixed < len(parts) && !strings.ContainsAny(parts[fixed], "*?[") {
		fixed++
	}
	prefix := filepath.FromSlash(strings.Join(parts[:fixed], "/"))
	real, err := filepath.EvalSymlinks(prefix)
	if err != nil || real == filepath.Clean(prefix) {
		return "", false
	}
	return filepath.Join(append([]string{real}, parts[fixed:]...)...), true
}

func (r pathRules) pattern(glob string) pattern {
	parts := r.split(glob)
	if !r.rooted(glob) && (len(parts) == 0 || parts[0] != anyDepth) {
		parts = append([]string{anyDepth}, parts...)
	}
	return parts
}

func (r pathRules) rooted(s string) bool {
	return strings.HasPrefix(s, "/") ||
		r.backslash && (strings.HasPrefix(s, `\`) || len(s) >= 2 && s[1] == ':')
}

// split cuts a path into cleaned components.
func (r pathRules) split(s string) []string {
	if r.backslash {
		s = strings.ReplaceAll(s, `\`, "/")
	}
	if r.foldCase {
		s = strings.ToLower(s)
	}
	var parts []string
	for _, c := range strings.Split(s, "/") {
		switch {
		case c == "" || c == ".":
		case c == ".." && len(parts) > 0:
			parts = parts[:len(parts)-1]
		case c == "..":
		default:
			parts = append(parts, c)
		}
	}
	return parts
}

func (r pathRules) matchAny(patterns []pattern, cwd string) bool {
	if len(patterns) == 0 {
		return false
	}
	dir := r.split(cwd)
	for _, p := range patterns {
		if p.covers(dir) {
			return true
		}
	}
	return false
}

// covers tells whether the pattern matches the directory or one above it. It
// goes back to the last `**` only, which is enough (an earlier one could not
// do better) and keeps the time bounded by the product of the lengths.
func (p pattern) covers(dir []string) bool {
	i, j := 0, 0
	star, mark := -1, 0
	for {
		if i == len(p) {
			return true // what is left of dir lies below the match
		}
		switch {
		case p[i] == anyDepth:
			star, mark = i, j
			i++
		case j < len(dir) && matchComponent(p[i], dir[j]):
			i++
			j++
		case star >= 0 && mark < len(dir):
			mark++
			i, j = star+1, mark
		default:
			return false
		}
	}
}

func matchComponent(glob, name string) bool {
	ok, err := path.Match(glob, name)
	return ok && err == nil
}

// checkGlob says what is wrong with a pattern.
func checkGlob(glob string, backslash bool) error {
	if backslash {
		glob = strings.ReplaceAll(glob, `\`, "/")
	}
	if strings.TrimSpace(glob) == "" {
		return errors.New("an empty pattern matches nothing: remove it")
	}
	for _, c := range strings.Split(glob, "/") {
		if c != anyDepth && strings.Contains(c, anyDepth) {
			return fmt.Errorf("%q: ** must stand alone between separators", glob)
		}
		if _, err := path.Match(c, ""); err != nil {
			return fmt.Errorf("%q is not a valid pattern: a [ without its ]", glob)
		}
	}
	return nil
}
