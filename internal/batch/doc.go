// Package batch stores uploaded files and batches of requests in a folder, within a budget of bytes, and runs each line
// of a batch as its own request.
//
// Its input is the lines of a file, its output lines of results. The [Runner] interprets a line and writes its result:
// the store only requires that a line is a JSON object with a custom_id. Every object belongs to a tenant and is not
// visible to other tenants.
//
// Results are appended to a journal as they arrive, one write for each, each with the number of its line. A process
// that is killed leaves at most the beginning of one entry, which is removed when the folder is opened again: a line is
// run again exactly if its result is not in the journal. docs/format/batch.md shows the folder.
package batch
