// Package bridge joins the parts: it takes what watch finds, drives the adapters and the buffer, seals what they make of it,
// and hands it to the store in one transaction with the cursors. It is the only package that knows all the others.
//
// One goroutine owns one source session from record to outbox; sessions run side by side. A Pump is the part of that path that
// needs neither clock nor disk: the daemon, the offline mapper and the property tests all run the same one.
package bridge
