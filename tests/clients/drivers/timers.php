<?php
// The client of timers, for drive.php.

return new Timers(new PDO($dsn, $url['user']));
