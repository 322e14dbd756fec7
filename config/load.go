package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"
)

// maxFile bounds the files that are read whole. A configuration that is larger
// is a mistake, such as a log file given as --config.
const maxFile = 1 << 20

// Load reads the configuration file at path, or the one at [DefaultPath] when
// path is empty; the latter may be absent, which gives the defaults. Everything
// that is wrong with a file is reported at once, in a [*FileError].
func Load(path string, env Env) (Config, error) {
	implied := path == ""
	if implied {
		path = DefaultPath(env)
	}
	data, err := readBounded(path)
	if implied && errors.Is(err, fs.ErrNotExist) {
		return Default(env), nil
	}
	if err != nil {
		return Config{}, fmt.Errorf("reading the configuration: %w", err)
	}
	return Parse(path, data, env)
}

// Parse is [Load] for the bytes of a file; name is used in messages, and its
// directory is what relative paths are relative to.
func Parse(name string, data []byte, env Env) (Config, error) {
	c := base()
	d := decoder{env: env, lines: map[string]int{}}
	if root := d.parse(data); root != nil {
		d.decodeStruct(root, reflectValue(&c), "")
	}
	c.resolve(env, filepath.Dir(name))
	d.readSecrets(&c)
	for _, p := range c.validate(env) {
		p.Line = d.lineOf(p.Key)
		// A value that could not be read is still at its default or at zero:
		// what can be said of that is of no use.
		if !slices.ContainsFunc(d.problems, func(q Problem) bool { return q.Key == p.Key }) {
			d.problems = append(d.problems, p)
		}
	}
	if len(d.problems) > 0 {
		slices.SortStableFunc(d.problems, func(a, b Problem) int { return a.Line - b.Line })
		return Config{}, &FileError{File: name, Problems: d.problems}
	}
	return c, nil
}

// parse returns the top-level mapping, or nil if there is none to decode.
func (d *decoder) parse(data []byte) *yaml.Node {
	loader, err := yaml.NewLoader(bytes.NewReader(data))
	if err != nil {
		d.fail(0, "", "%v", err)
		return nil
	}
	var doc yaml.Node
	if err := loader.Load(&doc); err != nil {
		if !errors.Is(err, io.EOF) { // an empty file is a valid one
			d.syntaxError(err)
		}
		return nil
	}
	var second yaml.Node
	switch err := loader.Load(&second); {
	case errors.Is(err, io.EOF):
	case err != nil:
		d.syntaxError(err)
		return nil
	default:
		d.fail(second.Line, "", "a second document begins here: a configuration is one document, remove the --- line")
	}
	root := &doc
	if root.Kind == yaml.DocumentNode {
		if len(root.Content) == 0 {
			return nil
		}
		root = root.Content[0]
	}
	if isNull(root) {
		return nil
	}
	return root
}

func (d *decoder) syntaxError(err error) {
	line, msg := 0, err.Error()
	var le *yaml.LoadError
	if errors.As(err, &le) {
		line, msg = int(le.Mark.Line), le.Message
	}
	d.fail(line, "", "not valid YAML: %s", msg)
}

// readSecrets fills in the values that lie in files of their own.
func (d *decoder) readSecrets(c *Config) {
	if c.Server.ProxyFile == "" {
		return
	}
	const key = "server.proxy_file"
	if c.Server.Proxy != "" {
		d.fail(d.lineOf(key), key, "server.proxy is set, too: keep one of them")
		return
	}
	data, err := readBounded(c.Server.ProxyFile)
	if err != nil {
		d.fail(d.lineOf(key), key, "%v", err)
		return
	}
	c.Server.Proxy = strings.TrimSpace(string(data))
	if c.Server.Proxy == "" {
		d.fail(d.lineOf(key), key, "%s is empty", c.Server.ProxyFile)
	}
}

func readBounded(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, err
	}
	if len(data) > maxFile {
		return nil, fmt.Errorf("%s is larger than %s", path, Size(maxFile))
	}
	return data, nil
}

// Problem is one thing that is wrong with a configuration.
type Problem struct {
	Line int    // 1-based; 0 if it belongs to no line
	Key  string // dotted, such as "server.url"; may be empty
	Text string // what is wrong and what would be right; holds no secret
}

// FileError lists all problems of one configuration file.
type FileError struct {
	File     string
	Problems []Problem
}

// Error has one line a problem: file, line, key, text.
func (e *FileError) Error() string {
	var b strings.Builder
	for i, p := range e.Problems {
		if i > 0 {
			b.WriteByte('\n')
		}
		b.WriteString(e.File)
		if p.Line > 0 {
			fmt.Fprintf(&b, ":%d", p.Line)
		}
		b.WriteString(": ")
		if p.Key != "" {
			b.WriteString(p.Key + ": ")
		}
		b.WriteString(p.Text)
	}
	return b.String()
}
