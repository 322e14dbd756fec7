//go:build race

package uplink

// raceEnabled says that memory figures are not ours but the race detector's.
const raceEnabled = true
