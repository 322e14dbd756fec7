//go:build !linux && !windows && !darwin && !dragonfly && !freebsd

package watch

// eventless says why changes below dir may come without events; empty if they do not.
func eventless(string) string { return "" }
