"""An application of WSGI: what is posted goes back, and else a file."""


def app(request, answer):
    if request['REQUEST_METHOD'] == 'POST':
        body = request['wsgi.input'].read()
    else:
        with open('.' + request['PATH_INFO'], 'rb') as file:
            body = file.read()
    answer('200 OK', [('Content-Length', str(len(body)))])
    return [body[at:at + 65536] for at in range(0, len(body), 65536)]
