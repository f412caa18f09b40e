package server

import (
	"errors"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"strconv"
	"strings"
	"time"

	"sparrow/api/openai"
	"sparrow/internal/batch"
	"sparrow/internal/wire"
)

const (
	filesPath   = "/v1/files"
	filePrefix  = filesPath + "/"
	batchesPath = "/v1/batches"
	batchPrefix = batchesPath + "/"
)

// filesAPI implements OpenAI's file endpoints.
type filesAPI struct{ *service }

// store returns the store of files and batches, or an error if none is configured.
func (s *service) store() (*batch.Store, error) {
	if s.options.Batches == nil {
		return nil, wire.NewError(wire.CodeNoBatches, "", "this server has no storage for files and batches; its "+
			"operator can start it with --batch-dir FOLDER")
	}
	return s.options.Batches, nil
}

// storeError converts errors of the store to errors with a code.
func storeError(err error) error {
	codes := []struct {
		is   error
		code wire.Code
	}{
		{batch.ErrUnknown, wire.CodeNoObject}, {batch.ErrFull, wire.CodeStorageFull}, {batch.ErrInUse, wire.CodeInUse},
		{batch.ErrEnded, wire.CodeInUse}, {batch.ErrInput, wire.CodeInvalidValue},
	}
	for _, c := range codes {
		if errors.Is(err, c.is) {
			_, text, _ := strings.Cut(err.Error(), ": ")
			_, text, _ = strings.Cut(text, ": ")
			return wire.NewError(c.code, "", "%s", text)
		}
	}
	return err
}

// rolling reads a body, and extends the read deadline with every piece.
type rolling struct {
	io.Reader
	control *http.ResponseController
	limit   time.Duration
}

func (r *rolling) Read(p []byte) (int, error) {
	if err := r.control.SetReadDeadline(time.Now().Add(r.limit)); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return 0, err
	}
	return r.Reader.Read(p)
}

// upload handles POST /v1/files. The file is written to the store while it is received.
func (s filesAPI) upload(w http.ResponseWriter, r *http.Request) error {
	store, err := s.store()
	if err != nil {
		return err
	}
	// Browsers send forms to other origins without a preflight request.
	if err := new(http.CrossOriginProtection).Check(r); err != nil {
		return wire.NewError(wire.CodeMediaType, "", "a web page of another origin may not upload files; send the "+
			"file from a program")
	}
	kind, params, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || kind != "multipart/form-data" || params["boundary"] == "" {
		return wire.NewError(wire.CodeMediaType, "", "the content type is %q; send multipart/form-data with the parts "+
			"purpose and file", r.Header.Get("Content-Type"))
	}
	body := &rolling{r.Body, http.NewResponseController(w), s.options.BodyTimeout}
	f, err := s.readUpload(store, multipart.NewReader(body, params["boundary"]), exchangeOf(r).tenant)
	if err != nil {
		exchangeOf(r).unread = r.Body
		return storeError(err)
	}
	return s.respond(w, http.StatusOK, fileObject(&f))
}

// maxFormText is the maximum bytes of the form's parts other than the file.
const maxFormText = 4 << 10

// readUpload reads the parts of a form. Fields may precede or follow the file.
func (s filesAPI) readUpload(store *batch.Store, form *multipart.Reader, tenant string) (batch.File, error) {
	var file batch.File
	fields, stored := map[string]string{}, false
	bad := func(err error) (batch.File, error) {
		if stored {
			err = errors.Join(err, store.DeleteFile(tenant, file.ID))
		}
		return batch.File{}, err
	}
	for {
		part, err := form.NextPart()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return bad(wire.NewError(wire.CodeInvalidJSON, "", "the form could not be read to its end: %v", err))
		}
		switch name := part.FormName(); {
		case name == "file" && stored:
			return bad(wire.NewError(wire.CodeDuplicate, "file", "was sent twice; send one file"))
		case name == "file":
			f := batch.File{Tenant: tenant, Name: clipName(part.FileName()), Purpose: openai.PurposeBatch}
			if file, err = store.Upload(f, part); err != nil {
				return bad(err)
			}
			stored = true
		default:
			text, err := io.ReadAll(io.LimitReader(part, maxFormText+1))
			if err != nil || len(text) > maxFormText {
				return bad(wire.NewError(wire.CodeTooLong, name, "has more than %d bytes, which is the "+
					"limit", maxFormText))
			}
			fields[name] = string(text)
		}
	}
	if !stored {
		return bad(wire.NewError(wire.CodeMissing, "file", "required; send the lines as the form part named file"))
	}
	if p := fields["purpose"]; p != openai.PurposeBatch {
		return bad(wire.NewError(wire.CodeUnsupportedValue, "purpose", "is %.40q; want %q", p,
			openai.PurposeBatch))
	}
	if text, ok := fields["expires_after[seconds]"]; ok {
		n, err := strconv.Atoi(text)
		if err != nil || n < 3600 || n > 2592000 {
			return bad(wire.NewError(wire.CodeOutOfRange, "expires_after", "is %.40q, want 3600 to 2592000 seconds",
				text))
		}
		f, err := store.Expire(tenant, file.ID, file.Created.Add(time.Duration(n)*time.Second))
		if err != nil {
			return bad(err)
		}
		file = f
	}
	return file, nil
}

// clipName returns a file's name without folders, cut to 255 bytes.
func clipName(name string) string {
	name = name[strings.LastIndexAny(name, `/\`)+1:]
	return strings.ToValidUTF8(name[:min(len(name), 255)], "")
}

func fileObject(f *batch.File) openai.FileObject {
	return openai.FileObject{ID: f.ID, Object: "file", Bytes: f.Bytes, CreatedAt: f.Created.Unix(),
		ExpiresAt: f.Expires.Unix(), Filename: f.Name, Purpose: f.Purpose, Status: "processed"}
}

// listLimit returns the parameter limit: usual if it is missing, at most most.
func listLimit(r *http.Request, usual, most int) (int, error) {
	text := r.URL.Query().Get("limit")
	if text == "" {
		return usual, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > most {
		return 0, wire.NewError(wire.CodeOutOfRange, "limit", "is %.40q, want 1 to %d", text, most)
	}
	return n, nil
}

// list handles GET /v1/files.
func (s filesAPI) list(w http.ResponseWriter, r *http.Request) error {
	store, err := s.store()
	if err != nil {
		return err
	}
	limit, err := listLimit(r, 1000, 10_000)
	if err != nil {
		return err
	}
	q := r.URL.Query()
	files, more := store.Files(exchangeOf(r).tenant, q.Get("purpose"), q.Get("after"), limit)
	out := make([]openai.FileObject, len(files))
	for i := range files {
		out[i] = fileObject(&files[i])
	}
	return s.respond(w, http.StatusOK, openai.NewList(out, func(f *openai.FileObject) string { return f.ID }, more))
}

// file handles GET /v1/files/{id} and GET /v1/files/{id}/content.
func (s filesAPI) file(w http.ResponseWriter, r *http.Request) error {
	store, err := s.store()
	if err != nil {
		return err
	}
	id, content := strings.CutSuffix(strings.TrimPrefix(r.URL.Path, filePrefix), "/content")
	if content {
		f, data, err := store.Content(exchangeOf(r).tenant, id)
		if err != nil {
			return storeError(err)
		}
		return s.sendLines(w, f, data)
	}
	f, err := store.File(exchangeOf(r).tenant, id)
	if err != nil {
		return storeError(err)
	}
	return s.respond(w, http.StatusOK, fileObject(&f))
}

// sendLines sends a file, and extends the write deadline with every piece.
func (s *service) sendLines(w http.ResponseWriter, f batch.File, data io.ReadCloser) error {
	defer data.Close()
	w.Header().Set("Content-Type", "application/x-ndjson")
	w.Header().Set("Content-Length", strconv.FormatInt(f.Bytes, 10))
	w.WriteHeader(http.StatusOK)
	buf := make([]byte, 64<<10)
	for {
		n, err := data.Read(buf)
		if n > 0 {
			if err := writeBy(w, time.Now().Add(s.options.WriteTimeout)); err != nil {
				return err
			}
			if _, err := w.Write(buf[:n]); err != nil {
				return gone(err)
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read %s: %w", f.ID, err)
		}
	}
}

// remove handles DELETE /v1/files/{id}.
func (s filesAPI) remove(w http.ResponseWriter, r *http.Request) error {
	store, err := s.store()
	if err != nil {
		return err
	}
	id := strings.TrimPrefix(r.URL.Path, filePrefix)
	if err := store.DeleteFile(exchangeOf(r).tenant, id); err != nil {
		return storeError(err)
	}
	return s.respond(w, http.StatusOK, openai.Deleted{ID: id, Object: "file", Deleted: true})
}
