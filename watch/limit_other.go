//go:build !darwin && !dragonfly && !freebsd && !netbsd && !openbsd

package watch

// A watch costs the same for every directory, however many files there are in it.
const (
	maxWatchedEntries = 0
	maxWatchedFiles   = 0
)
