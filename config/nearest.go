package config

import "strings"

// Nearest returns the known word that somebody most likely meant, or "" if
// none is close: at most a third of the letters may differ.
func Nearest(word string, known []string) string {
	const tooLong = 64 // nobody mistypes that much, and the cost is quadratic
	if len(word) > tooLong {
		return ""
	}
	best, bestDistance := "", max(len(word)/3, 1)+1
	for _, k := range known {
		d := distance(strings.ToLower(word), strings.ToLower(k))
		if d < bestDistance || d == bestDistance && best != "" && k < best {
			best, bestDistance = k, d
		}
	}
	return best
}

// distance counts insertions, deletions, replacements and swaps of neighbours.
func distance(a, b string) int {
	prev2 := make([]int, len(b)+1)
	prev := make([]int, len(b)+1)
	cur := make([]int, len(b)+1)
	for j := range prev {
		prev[j] = j
	}
	for i := 1; i <= len(a); i++ {
		cur[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			cur[j] = min(prev[j]+1, cur[j-1]+1, prev[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				cur[j] = min(cur[j], prev2[j-2]+1)
			}
		}
		prev2, prev, cur = prev, cur, prev2
	}
	return prev[len(b)]
}
