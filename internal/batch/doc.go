// Package batch stores uploaded files and batches of requests in a folder, within a budget of bytes, and runs each line
// of a batch as its own request.
//
// The input is a file with one request per line, the output a file with one result per line. The [Runner] computes a
// line; the store only requires that a line is a JSON object with a custom_id. Every object belongs to a tenant and is
// not visible to other tenants.
//
// Each result is appended to a journal by one write, with the number of its line. If the process is killed, at most one
// entry is incomplete; it is removed when the folder is opened again. Only lines without a result in the journal are
// run again. docs/format/batch.md describes the folder.
package batch
