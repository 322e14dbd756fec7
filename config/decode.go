package config

import (
	"encoding"
	"fmt"
	"reflect"
	"regexp"
	"sort"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"
)

// decoder walks a YAML tree along the fields of [Config]. It exists beside the
// YAML library's own decoding because a user wants every mistake at once, each
// with its line, its dotted key and a proposal.
type decoder struct {
	env      Env
	problems []Problem
	lines    map[string]int // dotted key -> line, to place later checks
}

func reflectValue(c *Config) reflect.Value { return reflect.ValueOf(c).Elem() }

func (d *decoder) fail(line int, key, format string, args ...any) {
	d.problems = append(d.problems, Problem{Line: line, Key: key, Text: fmt.Sprintf(format, args...)})
}

// lineOf returns the line of a key, or of the closest one above it.
func (d *decoder) lineOf(key string) int {
	for key != "" {
		if line, ok := d.lines[key]; ok {
			return line
		}
		cut := strings.LastIndexByte(key, '.')
		if cut < 0 {
			break
		}
		key = key[:cut]
	}
	return 0
}

func isNull(n *yaml.Node) bool {
	return n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null"
}

// decodeStruct sets the fields of v from a mapping.
func (d *decoder) decodeStruct(n *yaml.Node, v reflect.Value, path string) {
	if n.Kind != yaml.MappingNode {
		d.fail(n.Line, path, "%s is not a section: write \"key: value\" lines%s", describe(n), indentedBelow(path))
		return
	}
	fields := fieldsOf(v.Type())
	seen := map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		name := key.Value
		full := join(path, name)
		index, known := fields[name]
		switch first, dup := seen[name]; {
		case key.Kind != yaml.ScalarNode:
			d.fail(key.Line, path, "%s is not a key", describe(key))
			continue
		case !known:
			d.fail(key.Line, full, "unknown key%s", d.proposal(name, path, fields))
			continue
		case dup:
			d.fail(key.Line, full, "is already set in line %d", first)
			continue
		}
		seen[name] = key.Line
		d.lines[full] = key.Line
		if isNull(value) {
			continue // "key:" with nothing behind it keeps the default
		}
		d.decodeValue(value, v.Field(index), full)
	}
}

func indentedBelow(path string) string {
	if path == "" {
		return ""
	}
	return " indented below it"
}

func (d *decoder) decodeValue(n *yaml.Node, v reflect.Value, path string) {
	if n.Kind == yaml.AliasNode {
		d.fail(n.Line, path, "YAML aliases (*name) are not supported: write the value itself")
		return
	}
	if t, ok := v.Addr().Interface().(encoding.TextUnmarshaler); ok {
		if s, ok := d.scalar(n, path); ok {
			if err := t.UnmarshalText([]byte(s)); err != nil {
				d.fail(n.Line, path, "%v", err)
			}
		}
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		d.decodeStruct(n, v, path)
	case reflect.String:
		if s, ok := d.scalar(n, path); ok {
			v.SetString(s)
		}
	case reflect.Bool:
		if s, ok := d.scalar(n, path); ok {
			b, err := strconv.ParseBool(s)
			if err != nil {
				d.fail(n.Line, path, "%q is neither true nor false", s)
			}
			v.SetBool(b)
		}
	case reflect.Slice:
		d.decodeList(n, v, path)
	default:
		panic("config: no decoding for " + v.Type().String()) // a field of a new kind: caught by every test
	}
}

// decodeList reads a list of strings; a single string counts as a list of one.
func (d *decoder) decodeList(n *yaml.Node, v reflect.Value, path string) {
	items := []*yaml.Node{n}
	if n.Kind == yaml.SequenceNode {
		items = n.Content
	}
	list := make([]string, 0, len(items))
	for i, item := range items {
		p := fmt.Sprintf("%s[%d]", path, i)
		d.lines[p] = item.Line
		if s, ok := d.scalar(item, p); ok {
			list = append(list, s)
		}
	}
	if len(list) == 0 {
		list = nil
	}
	v.Set(reflect.ValueOf(list))
}

// scalar returns a scalar's text with its variables replaced.
func (d *decoder) scalar(n *yaml.Node, path string) (string, bool) {
	// YAML reads a bare ~ as null; in a list of directories nobody means that.
	if n.Kind != yaml.ScalarNode || isNull(n) && n.Value != "~" {
		d.fail(n.Line, path, "%s where a single value belongs", describe(n))
		return "", false
	}
	ok := true
	text := variable.ReplaceAllStringFunc(n.Value, func(ref string) string {
		if strings.HasPrefix(ref, "$$") {
			return ref[1:]
		}
		name := ref[2 : len(ref)-1]
		value, set := d.env.lookup(name)
		if !set {
			d.fail(n.Line, path, "the environment variable %s is not set (write $${%s} for the text itself)", name, name)
			ok = false
		}
		return value
	})
	return text, ok
}

// variable matches ${NAME}, and $${NAME}, which stands for the text ${NAME}.
var variable = regexp.MustCompile(`\$?\$\{[A-Za-z_][A-Za-z0-9_]*\}`)

func describe(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "a section"
	case yaml.SequenceNode:
		return "a list"
	case yaml.AliasNode:
		return "an alias"
	}
	if isNull(n) {
		return "an empty value"
	}
	return "a single value"
}

// fieldsOf maps the YAML names of a struct's fields to their indices.
func fieldsOf(t reflect.Type) map[string]int {
	fields := map[string]int{}
	for i := range t.NumField() {
		if name := t.Field(i).Tag.Get("yaml"); name != "" {
			fields[name] = i
		}
	}
	return fields
}

// proposal names the closest key of the section, or the full name of a key
// that was written without its section.
func (d *decoder) proposal(name, path string, fields map[string]int) string {
	var local []string
	for f := range fields {
		local = append(local, f)
	}
	if best := Nearest(name, local); best != "" {
		return fmt.Sprintf(": did you mean %q?", join(path, best))
	}
	for _, key := range Keys() {
		if key == name || strings.HasSuffix(key, "."+name) {
			return fmt.Sprintf(": did you mean %q?", key)
		}
	}
	sort.Strings(local)
	return fmt.Sprintf("; known here: %s", strings.Join(local, ", "))
}

// Keys returns the dotted names of all settings, in the order of [Config].
func Keys() []string { return keysOf(reflect.TypeFor[Config](), "") }

func keysOf(t reflect.Type, path string) (keys []string) {
	text := reflect.TypeFor[encoding.TextUnmarshaler]()
	for i := range t.NumField() {
		f := t.Field(i)
		name := f.Tag.Get("yaml")
		if name == "" {
			continue
		}
		if f.Type.Kind() == reflect.Struct && !reflect.PointerTo(f.Type).Implements(text) {
			keys = append(keys, keysOf(f.Type, join(path, name))...)
			continue
		}
		keys = append(keys, join(path, name))
	}
	return keys
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}
