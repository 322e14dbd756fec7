//go:build darwin || dragonfly || freebsd || netbsd || openbsd

package watch

// With kqueue a watched directory costs one open file for each file in it, so only small directories are watched and only so many;
// the others are polled.
const (
	maxWatchedEntries = 64
	maxWatchedFiles   = 1024
)
