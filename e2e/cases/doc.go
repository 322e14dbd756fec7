// Package cases reads test cases (input files, steps, and assertions about the resulting streams), plays their input to a machine
// with a running daemon, and checks what the server holds in the end.
//
// A case is a directory. in/home is a ready home directory ("map"), or in/steps.json says what happens to the files while the
// daemon runs ("tail"). assert.json says what the streams must look like:
//
//	kind        "map", "tail", "net" or "ops"
//	sessions    by the provider's id: sequence (patterns, or a list of such lists), exact (the whole stream, after what matches a
//	            pattern of ignore was removed) or a subsequence, count ({pattern, n or [min, max]}), forbid
//	forbid      patterns that match nowhere
//	invariants  "calls-closed": no call stays open; "no-native-subagent": no provider's id is used as a subagent's. Everything
//	            else that streamcheck promises holds always.
//
// A pattern is an object: role, t, text, text~ (contains), any~ (contained in the envelope's JSON), thinking, status, name,
// title~, and turn, subagent, call with "$X" (bind, or equal what is bound; different from its relatives with the same letter),
// "*" (present) or null (absent).
package cases
