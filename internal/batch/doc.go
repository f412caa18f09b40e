// Package batch keeps uploaded files and batches of requests in a folder, within a budget of bytes, and runs the lines
// of batches one by one.
//
// In flow the lines of a file, out flow lines of results. What a line means, and how its result is written, is the
// [Runner]'s: the store knows that a line is a JSON object with a custom_id. Every object belongs to a tenant and is
// not visible to others.
//
// Results are appended to a journal as they come, one write for each, with the number of their line. A process that is
// killed leaves at most the beginning of one entry, which is cut off when the folder is opened again: a line is run
// again exactly where its result is not in the journal. docs/format/batch.md draws the folder.
package batch
