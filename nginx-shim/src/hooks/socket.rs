//! socket, bind, listen, accept, connect, shutdown, addresses and options.

use libc::{c_int, c_void, sockaddr, socklen_t};

use super::{number, status};
use crate::calls::establish::{self, End};
use crate::calls::{message, option};
use crate::failure::{Failure, Outcome, fail, set_errno};
use crate::{address, batch, options, process, real, table};

#[unsafe(no_mangle)]
unsafe extern "C" fn socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int {
    // SAFETY: passed through.
    let mut fd = unsafe { real::socket(domain, kind, protocol) };
    if !process::takes_sockets() {
        return fd;
    }
    if fd < 0 && super::file::made_room() {
        // SAFETY: passed through.
        fd = unsafe { real::socket(domain, kind, protocol) };
    }
    if fd >= 0
        && let (Some(domain), Some(of)) = (options::domain_of(domain), options::kind_of(kind, protocol))
    {
        establish::socket(fd, domain, of, kind & libc::SOCK_NONBLOCK != 0);
    }
    fd
}

#[unsafe(no_mangle)]
unsafe extern "C" fn bind(fd: c_int, addr: *const sockaddr, len: socklen_t) -> c_int {
    // SAFETY: passed through with the application's arguments.
    let real = || unsafe { real::bind(fd, addr, len) };
    if table::socket(fd).is_none() {
        return real();
    }
    // SAFETY: the application's address is valid for its length.
    let given = match unsafe { address::read(addr, len) } {
        Ok(given) => given,
        // The kernel has the exact errno.
        Err(_) => return real(),
    };
    status(establish::bind(fd, given), real)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn listen(fd: c_int, backlog: c_int) -> c_int {
    // SAFETY: passed through with the application's arguments.
    let real = || unsafe { real::listen(fd, backlog) };
    if table::socket(fd).is_none() {
        return real();
    }
    status(establish::listen(fd, backlog), real)
}

fn accept_here(fd: c_int, addr: *mut sockaddr, len: *mut socklen_t, flags: c_int) -> Outcome<c_int> {
    let accepted = establish::accept(fd, flags)?;
    // SAFETY: the application's address has the room that it says.
    match unsafe { address::write(accepted.peer, accepted.domain, addr, len) } {
        Ok(()) => Ok(accepted.fd),
        Err(failure) => {
            // The only error is that the connection is gone already.
            let _ = crate::calls::descriptor::close(accepted.fd);
            Err(failure)
        }
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn accept(fd: c_int, addr: *mut sockaddr, len: *mut socklen_t) -> c_int {
    // SAFETY: passed through with the application's arguments.
    let real = || unsafe { real::accept(fd, addr, len) };
    if table::socket(fd).is_none() {
        return real();
    }
    number(accept_here(fd, addr, len, 0), real)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn accept4(fd: c_int, addr: *mut sockaddr, len: *mut socklen_t, flags: c_int) -> c_int {
    // SAFETY: passed through with the application's arguments.
    let real = || unsafe { real::accept4(fd, addr, len, flags) };
    if table::socket(fd).is_none() {
        return real();
    }
    number(accept_here(fd, addr, len, flags), real)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn connect(fd: c_int, addr: *const sockaddr, len: socklen_t) -> c_int {
    // SAFETY: passed through with the application's arguments.
    let real = || unsafe { real::connect(fd, addr, len) };
    if table::socket(fd).is_none() {
        return real();
    }
    // SAFETY: the application's address is valid for its length.
    let given = match unsafe { address::read(addr, len) } {
        Ok(given) => given,
        Err(Failure::Errno(errno)) => {
            set_errno(errno);
            return -1;
        }
        Err(Failure::Kernel) => return real(),
    };
    status(establish::connect(fd, given), real)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn shutdown(fd: c_int, how: c_int) -> c_int {
    // SAFETY: passed through with the application's arguments.
    let real = || unsafe { real::shutdown(fd, how) };
    if table::socket(fd).is_none() {
        return real();
    }
    status(establish::shutdown(fd, how), real)
}

fn tell_address(fd: c_int, end: End, addr: *mut sockaddr, len: *mut socklen_t) -> Outcome<()> {
    let (address, domain) = establish::address(fd, end)?;
    if addr.is_null() {
        return fail(libc::EFAULT);
    }
    // SAFETY: the application's address has the room that it says.
    unsafe { address::write(address, domain, addr, len) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn getsockname(fd: c_int, addr: *mut sockaddr, len: *mut socklen_t) -> c_int {
    // SAFETY: passed through with the application's arguments.
    let real = || unsafe { real::getsockname(fd, addr, len) };
    if table::socket(fd).is_none() {
        return real();
    }
    status(tell_address(fd, End::Local, addr, len), real)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn getpeername(fd: c_int, addr: *mut sockaddr, len: *mut socklen_t) -> c_int {
    // SAFETY: passed through with the application's arguments.
    let real = || unsafe { real::getpeername(fd, addr, len) };
    if table::socket(fd).is_none() {
        return real();
    }
    status(tell_address(fd, End::Peer, addr, len), real)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn getsockopt(
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *mut c_void,
    len: *mut socklen_t,
) -> c_int {
    // SAFETY: passed through with the application's arguments.
    let real = || unsafe { real::getsockopt(fd, level, name, value, len) };
    if table::socket(fd).is_none() {
        return real();
    }
    // SAFETY: the application's value has the room that it says.
    status(unsafe { option::get(fd, level, name, value, len) }, real)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn setsockopt(
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *const c_void,
    len: socklen_t,
) -> c_int {
    // SAFETY: passed through with the application's arguments.
    let real = || unsafe { real::setsockopt(fd, level, name, value, len) };
    if table::socket(fd).is_none() {
        return real();
    }
    if (len as i32) < 0 {
        set_errno(libc::EINVAL);
        return -1;
    }
    if value.is_null() && len > 0 {
        set_errno(libc::EFAULT);
        return -1;
    }
    // SAFETY: the application's value is valid for its length.
    let bytes = unsafe { message::slice(value.cast(), len as usize) };
    status(option::set(fd, level, name, bytes), real)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn socketpair(domain: c_int, kind: c_int, protocol: c_int, pair: *mut c_int) -> c_int {
    // SAFETY: passed through with the application's arguments.
    let result = unsafe { real::socketpair(domain, kind, protocol, pair) };
    if result == 0 {
        // SAFETY: the call has filled both ends in.
        batch::paired(unsafe { *pair });
    }
    result
}
