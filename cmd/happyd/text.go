package main

import (
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/happyd/happyd/config"
)

// printable replaces what could move a terminal's cursor, change its colours or
// reverse its text: what a session contains is not to be trusted with that.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\t':
			return ' '
		case r == utf8.RuneError, unicode.IsControl(r), unicode.Is(unicode.Bidi_Control, r),
			r == '\u2028', r == '\u2029':
			return '\ufffd'
		}
		return r
	}, s)
}

// firstLine is the first line with something in it, and how many follow.
func firstLine(s string) (line string, more int) {
	s = strings.TrimSpace(s)
	line, rest, _ := strings.Cut(s, "\n")
	if rest != "" {
		more = strings.Count(rest, "\n") + 1
	}
	return printable(strings.TrimSpace(line)), more
}

// shorten cuts a line to a number of characters; width 0 is without limit.
func shorten(s string, width int) string {
	if width <= 0 || utf8.RuneCountInString(s) <= width {
		return s
	}
	return string([]rune(s)[:max(width-1, 0)]) + "…"
}

// bytesText writes a number of bytes for people.
func bytesText(n int64) string {
	switch {
	case n < int64(config.KiB):
		return fmt.Sprintf("%d B", n)
	case n < int64(config.MiB):
		return fmt.Sprintf("%.1f KiB", float64(n)/float64(config.KiB))
	case n < int64(config.GiB):
		return fmt.Sprintf("%.1f MiB", float64(n)/float64(config.MiB))
	}
	return fmt.Sprintf("%.1f GiB", float64(n)/float64(config.GiB))
}

// ago writes how long something took or has been, in at most two units.
func ago(d time.Duration) string {
	switch d = max(d, 0); {
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm%02ds", int(d.Minutes()), int(d.Seconds())%60)
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh%02dm", int(d.Hours()), int(d.Minutes())%60)
	}
	return fmt.Sprintf("%dd", int(d.Hours())/24)
}
