// Package batch stores uploaded files and batches of requests in a folder, within a budget of bytes, and runs the lines
// of batches one by one.
//
// Its input is the lines of a file, its output lines of results. The [Runner] interprets a line and writes its result:
// the store only requires that a line is a JSON object with a custom_id. Every object belongs to a tenant and is not
// visible to others.
//
// Results are appended to a journal as they arrive, one write for each, with the number of their line. A process that
// is killed leaves at most the beginning of one entry, which is removed when the folder is opened again: a line is run
// again exactly if its result is not in the journal. docs/format/batch.md shows the folder.
package batch
