//go:build !race

package uplink

const raceEnabled = false
