<?php
// What is posted goes back, and else a file.
if ($_SERVER['REQUEST_METHOD'] != 'POST') return false;
$body = file_get_contents('php://input');
header('Content-Length: ' . strlen($body));
echo $body;
