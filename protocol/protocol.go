// Package protocol is the session protocol: the nine events, the envelope
// around them, their JSON, and the rules a peer applies before it shows one.
//
// Adapters hand in Events; the bridge puts them into Envelopes, calls Wrap and
// gets the plaintext that is sealed and sent. Readers go the other way with
// Unwrap or Decode. The ids of envelopes, turns and subagents are derived here
// too (EnvelopeID, TurnID, SubagentID), so that the same log always produces
// the same ids and a server can drop what it already has.
//
// Peers drop a message that breaks one rule without telling anybody, so
// Validate is strict: what it accepts, the official schema accepts. Nothing
// else in happyd knows the wire names. The package holds no state, reads no
// clock and does no I/O; its errors name fields, never their contents.
package protocol

import "encoding/json"

// Role says who produced an event.
type Role string

// The two roles.
const (
	RoleUser  Role = "user"
	RoleAgent Role = "agent"
)

// Type is the kind of an event, its "t" on the wire.
type Type string

// The nine events of the protocol.
const (
	TypeText      Type = "text"
	TypeService   Type = "service"
	TypeToolStart Type = "tool-call-start"
	TypeToolEnd   Type = "tool-call-end"
	TypeFile      Type = "file"
	TypeTurnStart Type = "turn-start"
	TypeTurnEnd   Type = "turn-end"
	TypeStart     Type = "start"
	TypeStop      Type = "stop"
)

// Status is how a turn ended.
type Status string

// The three outcomes of a turn.
const (
	StatusCompleted Status = "completed"
	StatusFailed    Status = "failed"
	StatusCancelled Status = "cancelled"
)

// Usage is the token count of one model answer. A nil pointer or an empty tier
// is left out of the JSON: a null there makes the app drop the whole message.
type Usage struct {
	// InputTokens and OutputTokens are always written.
	InputTokens, OutputTokens int64
	// CacheCreationInputTokens counts tokens written to the prompt cache.
	CacheCreationInputTokens *int64
	// CacheReadInputTokens counts tokens read from the prompt cache.
	CacheReadInputTokens *int64
	// ContextWindow is the size of the model's context in tokens, above zero.
	ContextWindow *int64
	// ServiceTier is the provider's name for the tier that answered.
	ServiceTier string
}

// Image describes an attached picture so that a client can lay it out early.
type Image struct {
	// Width and Height are in pixels, both above zero.
	Width, Height int
	// Thumbhash is the base64 ThumbHash placeholder.
	Thumbhash string
}

// Event is the body of an envelope, flat: T decides which of the other fields
// mean something, and only those are written.
type Event struct {
	// T is the event's type.
	T Type
	// Text belongs to text and service; markdown.
	Text string
	// Thinking marks a text as reasoning, hidden by default.
	Thinking bool
	// Call joins a tool-call-start with its tool-call-end; unique in a session.
	Call string
	// Name is the tool of a tool-call-start or the file name of a file.
	Name string
	// Title is the short line of a tool-call-start, or the optional title of a start.
	Title string
	// Description is the longer line of a tool-call-start.
	Description string
	// Args is the input of a tool-call-start: a JSON object, kept as it is.
	Args json.RawMessage
	// Ref is the server's name for an uploaded file.
	Ref string
	// Size is a file's size in bytes, before it was encrypted.
	Size int64
	// MimeType of a file, optional.
	MimeType string
	// Image is set when a file is a picture of known size.
	Image *Image
	// Status belongs to turn-end.
	Status Status
}

// Envelope is one message of a session.
type Envelope struct {
	// ID is the message's identity (see EnvelopeID); clients drop a second one.
	ID string
	// Time is Unix time in milliseconds, strictly increasing within a session.
	Time int64
	// Role says who speaks.
	Role Role
	// Turn is the id of the turn the message belongs to; agents need one.
	Turn string
	// Subagent names the child conversation, empty for the main thread.
	Subagent string
	// ClaudeUUID is the uuid of the Claude record the message came from, optional.
	ClaudeUUID string
	// CodexItemID is the Codex item the message came from, optional.
	CodexItemID string
	// Usage is the model's token count, optional.
	Usage *Usage
	// Ev is what happened.
	Ev Event
}
