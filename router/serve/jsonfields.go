package serve

import (
	"net/http"
	"strconv"

	"tidegate/cdc/key"
)

// maxExclude bounds the servers that a route may exclude.
const maxExclude = 256

// json takes the fields of one JSON object.
func (a *ask) json(r *jsonReader) *wireError {
	a.keyName = "keys"
	return r.object(func(name string) *wireError { return a.jsonField(r, name) })
}

func (a *ask) jsonField(r *jsonReader, name string) *wireError {
	if r.peek() == 0 {
		return r.wrong("expected a value, got the end")
	}
	switch name {
	case "keys":
		if err := a.once(gaveKeys, name); err != nil {
			return err
		}
		if r.peek() != '[' {
			return bad(CodeBadField, name, r.i, "it is not an array")
		}
		return r.array(func(n int) *wireError { return a.jsonKey(r, n) })
	case "max_staleness_ms":
		v, err := r.number()
		if err != nil {
			return bad(CodeBadField, name, r.i, "it is not a number of milliseconds, 0 or more")
		}
		return a.staleness(name, v)
	case "verbose":
		if err := a.once(gaveVerbose, name); err != nil {
			return err
		}
		return jsonBool(r, name, &a.req.Verbose)
	case "in_transaction":
		if a.kind != kindRoute {
			break
		}
		if err := a.once(gaveInTransaction, name); err != nil {
			return err
		}
		return jsonBool(r, name, &a.req.InTransaction)
	case "exclude":
		if a.kind != kindRoute {
			break
		}
		if err := a.once(gaveExclude, name); err != nil {
			return err
		}
		return a.jsonExclude(r)
	case "replica", "floor", "level", "class":
		if name == "replica" && a.kind != kindServe {
			break
		}
		if r.peek() != '"' {
			return bad(CodeBadField, name, r.i, "it is not a string")
		}
		v, err := r.text()
		if err != nil {
			return err
		}
		_, err = a.text(name, v)
		return err
	}
	return bad(CodeUnknownField, name, r.i, "there is no such field here")
}

func jsonBool(r *jsonReader, name string, v *bool) (err *wireError) {
	if *v, err = r.boolean(); err != nil {
		return bad(CodeBadField, name, r.i, "it is not true or false")
	}
	return nil
}

func (a *ask) jsonExclude(r *jsonReader) *wireError {
	if r.peek() != '[' {
		return bad(CodeBadField, "exclude", r.i, "it is not an array")
	}
	return r.array(func(n int) *wireError {
		if n == maxExclude {
			return fail(http.StatusRequestEntityTooLarge, CodeTooLarge, "exclude", "at most "+strconv.Itoa(maxExclude)+" servers are allowed")
		}
		if r.peek() != '"' {
			return bad(CodeBadField, item("exclude", n), r.i, "it is not a string")
		}
		v, err := r.text()
		a.exclude = append(a.exclude, v)
		return err
	})
}

// jsonKey takes one key: printed, or as an object.
func (a *ask) jsonKey(r *jsonReader, n int) *wireError {
	switch r.peek() {
	case '"':
		v, err := r.text()
		if err != nil {
			return err
		}
		return a.key(v)
	case '{':
		k, err := a.nextKey()
		if err != nil {
			return err
		}
		return jsonKeyObject(r, item(a.keyName, n), k)
	}
	return bad(CodeBadKey, item(a.keyName, n), r.i, "it is neither a string nor an object")
}

// jsonKeyObject reads {"table","pk":[...]} or {"table","group","value"}.
func jsonKeyObject(r *jsonReader, field string, k *key.Key) *wireError {
	start := r.i
	*k = key.Key{Values: k.Values[:0]}
	var table, group, pk, value bool
	err := r.object(func(name string) *wireError {
		twice := false
		defer func() {
			table, group, pk, value = table || name == "table", group || name == "group", pk || name == "pk", value || name == "value"
		}()
		switch name {
		case "table":
			twice = table
			v, err := r.text()
			if err != nil {
				return err
			}
			var perr error
			if k.Schema, k.Table, perr = key.ParseTable(v); perr != nil {
				e := badKey("", 0, perr)
				e.field = field + ".table"
				return e
			}
		case "group":
			twice = group
			v, err := r.text()
			if err != nil {
				return err
			}
			k.Kind, k.Column = key.KindGroup, v
		case "pk":
			twice = pk
			k.Kind = key.KindRow
			if err := r.array(func(int) *wireError { return jsonValue(r, field+".pk", k) }); err != nil {
				return err
			}
		case "value":
			twice = value
			if err := jsonValue(r, field+".value", k); err != nil {
				return err
			}
		default:
			return bad(CodeUnknownField, field+"."+name, r.i, "a key has table and pk, or table, group and value")
		}
		if twice {
			return bad(CodeBadKey, field+"."+name, r.i, "it is given twice")
		}
		return nil
	})
	if err != nil {
		return err
	}
	if !table || pk == group || group != value || len(k.Values) == 0 {
		return bad(CodeBadKey, field, start, "a key has table and pk, or table, group and value")
	}
	return nil
}

func jsonValue(r *jsonReader, field string, k *key.Key) *wireError {
	v := key.TextValue{}
	var err *wireError
	switch c := r.peek(); {
	case c == '"':
		v.Text, err = r.text()
	case c == '-' || c >= '0' && c <= '9':
		v.Text, err = r.number()
	case r.word("null"):
		v.Null = true
	default:
		return bad(CodeBadKey, field, r.i, "a value is a string, a number or null")
	}
	k.Values = append(k.Values, v)
	return err
}
