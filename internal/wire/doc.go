// Package wire decodes the JSON bodies of requests for all HTTP interfaces, and collects their errors.
//
// The input is a body and a table of its fields by name ([Fields]). The output is a struct, or an [Error] that lists
// every problem ([Decode]), and the names of fields that had no effect ([Decoder.Ignored]). The packages below api
// define the interfaces; this package does not import them.
//
// encoding/json is not used, because it replaces invalid UTF-8, accepts duplicate names, ignores the case of names and
// drops unknown names.
package wire
