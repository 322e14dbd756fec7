package config

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Size is a number of bytes, written as "64MiB", "1GB" or a plain number.
type Size int64

// Binary units.
const (
	KiB Size = 1 << 10
	MiB Size = 1 << 20
	GiB Size = 1 << 30
)

var sizeUnits = []struct {
	suffix string
	factor Size
}{
	{"KiB", KiB}, {"MiB", MiB}, {"GiB", GiB},
	{"KB", 1000}, {"MB", 1000 * 1000}, {"GB", 1000 * 1000 * 1000},
	{"B", 1},
}

// ParseSize reads a number of bytes. Units are KiB, MiB, GiB, KB, MB, GB and B,
// in any case; without a unit the number is bytes.
func ParseSize(s string) (Size, error) {
	number, factor := strings.TrimSpace(s), Size(1)
	for _, u := range sizeUnits {
		if n := len(number) - len(u.suffix); n > 0 && strings.EqualFold(number[n:], u.suffix) {
			number, factor = strings.TrimSpace(number[:n]), u.factor
			break
		}
	}
	n, err := strconv.ParseInt(number, 10, 64)
	if err != nil || n < 0 {
		return 0, fmt.Errorf("%q is not a size: write a whole number with a unit, such as 64MiB", s)
	}
	if n > math.MaxInt64/int64(factor) {
		return 0, fmt.Errorf("%q is too large a size", s)
	}
	return Size(n) * factor, nil
}

// String writes the size with the largest unit that divides it.
func (s Size) String() string {
	for _, u := range []struct {
		name string
		unit Size
	}{{"GiB", GiB}, {"MiB", MiB}, {"KiB", KiB}} {
		if s >= u.unit && s%u.unit == 0 {
			return strconv.FormatInt(int64(s/u.unit), 10) + u.name
		}
	}
	return strconv.FormatInt(int64(s), 10)
}

// MarshalText implements [encoding.TextMarshaler].
func (s Size) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText implements [encoding.TextUnmarshaler].
func (s *Size) UnmarshalText(text []byte) (err error) {
	*s, err = ParseSize(string(text))
	return err
}

// History is how far back logs are read that happyd meets for the first time:
// not at all (the zero value), a window before now, or without limit.
type History struct {
	All    bool
	Window time.Duration
}

// Covers tells whether a log that last changed at the given time is read from
// its start.
func (h History) Covers(changed, now time.Time) bool {
	return h.All || (h.Window > 0 && now.Sub(changed) <= h.Window)
}

// ParseHistory reads "none", "all" or a duration such as 24h, 90m or 7d.
func ParseHistory(s string) (History, error) {
	switch s {
	case "none":
		return History{}, nil
	case "all":
		return History{All: true}, nil
	}
	d, err := parseDuration(s)
	if err != nil || d <= 0 {
		return History{}, fmt.Errorf("%q is not a history: write none, all or a duration such as 24h or 7d", s)
	}
	return History{Window: d}, nil
}

// parseDuration is time.ParseDuration with a leading number of days.
func parseDuration(s string) (time.Duration, error) {
	days, rest, ok := strings.Cut(s, "d")
	if !ok {
		return time.ParseDuration(s)
	}
	n, err := strconv.ParseUint(days, 10, 16) // 65,535 days: far from overflow
	if err != nil {
		return 0, fmt.Errorf("parsing days: %w", err)
	}
	d := time.Duration(n) * 24 * time.Hour
	if rest == "" {
		return d, nil
	}
	r, err := time.ParseDuration(rest)
	if err != nil {
		return 0, err
	}
	if r < 0 {
		return 0, fmt.Errorf("negative part %q", rest)
	}
	return d + r, nil
}

// String writes the history as [ParseHistory] reads it.
func (h History) String() string {
	switch {
	case h.All:
		return "all"
	case h.Window <= 0:
		return "none"
	case h.Window%time.Hour == 0:
		return strconv.Itoa(int(h.Window/time.Hour)) + "h"
	}
	return h.Window.String()
}

// MarshalText implements [encoding.TextMarshaler].
func (h History) MarshalText() ([]byte, error) { return []byte(h.String()), nil }

// UnmarshalText implements [encoding.TextUnmarshaler].
func (h *History) UnmarshalText(text []byte) (err error) {
	*h, err = ParseHistory(string(text))
	return err
}
