package demo

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"regexp"
)

// ids are the ids of one replay, by kind and name.
type ids map[[2]string]string

// get returns the id with a name, made when it is first asked for.
func (m ids) get(kind, name string) string {
	key := [2]string{kind, name}
	if m[key] == "" {
		m[key] = m.fresh(kind)
	}
	return m[key]
}

// fresh makes an id that looks like Claude Code's of that kind.
func (ids) fresh(kind string) string {
	var b [16]byte
	rand.Read(b[:]) // never fails
	switch kind {
	case "session", "uuid", "prompt":
		b[6] = b[6]&0x0f | 0x40
		b[8] = b[8]&0x3f | 0x80
		h := hex.EncodeToString(b[:])
		return h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:]
	case "agent":
		return "a" + hex.EncodeToString(b[:8])
	case "tool":
		return "toolu_01" + rand.Text()[:22]
	}
	return kind + "_01" + rand.Text()[:22] // msg, req
}

// placeholder matches @{kind:name}, and @{name} for a given value.
var placeholder = regexp.MustCompile(`@\{([a-z]+)(?::([a-z0-9]+))?\}`)

// replace puts ids and the given values into the strings of a JSON text.
func (m ids) replace(rec []byte, values map[string]string) []byte {
	return placeholder.ReplaceAllFunc(rec, func(ref []byte) []byte {
		part := placeholder.FindSubmatch(ref)
		kind, name := string(part[1]), string(part[2])
		if name != "" {
			return []byte(m.get(kind, name))
		}
		quoted, err := json.Marshal(values[kind])
		if err != nil || len(quoted) < 2 {
			return nil
		}
		return quoted[1 : len(quoted)-1]
	})
}
